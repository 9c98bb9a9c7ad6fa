import './base.css';
import './output.css';
