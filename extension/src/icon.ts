/** The icon of the panel and the launcher: ranks that do not arrive together. */

import { LabIcon } from '@jupyterlab/ui-components';

import svg from '../style/ranks.svg';

export const ranksIcon = new LabIcon({ name: 'ddt-notebook:ranks', svgstr: svg });
