"use strict";(self.rspackChunkddt_notebook=self.rspackChunkddt_notebook||[]).push([[1],{35(t,o,e){var r=e(36),a=e.n(r),n=e(37),d=(e.n(n))()(a());d.push([t.id,`.ddt-lab-panel {
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  line-height: 1.45;
  min-width: 220px;
  overflow: auto;
  padding: 8px 12px;
}

.ddt-lab-line {
  margin: 4px 0;
  overflow-wrap: anywhere;
}

.ddt-lab-title {
  font-weight: bold;
}

.ddt-lab-heading {
  font-size: var(--jp-ui-font-size1);
  margin: 14px 0 4px;
}

.ddt-lab-controls {
  align-items: center;
  display: flex;
  flex-wrap: wrap;
  gap: 6px;
  margin: 6px 0;
}

.ddt-lab-panel button.ddt-lab-button {
  background: var(--jp-layout-color2);
  border: 1px solid var(--jp-border-color1);
  color: var(--jp-ui-font-color1);
  height: 26px;
  line-height: 24px;
  padding: 0 10px;
}

.ddt-lab-panel button.ddt-lab-button:disabled {
  opacity: 0.5;
}

.ddt-lab-panel input.ddt-lab-number {
  background: var(--jp-input-background);
  border: 1px solid var(--jp-border-color1);
  color: var(--jp-ui-font-color1);
  height: 26px;
  width: 4.5em;
}

.ddt-lab-panel button:focus-visible,
.ddt-lab-panel input:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: 1px;
}

.ddt-lab-chip {
  border-radius: 3px;
  color: #000;
  display: inline-block;
  font-weight: bold;
  line-height: 1.3;
  max-width: 100%;
  padding: 1px 6px;
}

.ddt-lab-ranks {
  border-collapse: collapse;
  margin: 6px 0;
  width: 100%;
}

.ddt-lab-ranks th,
.ddt-lab-ranks td {
  border-bottom: 1px solid var(--jp-border-color2);
  padding: 4px 10px 4px 0;
  text-align: left;
  vertical-align: top;
}

.ddt-lab-where,
.ddt-lab-places code {
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
  overflow-wrap: anywhere;
}

/* An error's whole text stands below the cell. */
.ddt-lab-where {
  display: -webkit-box;
  overflow: hidden;
  -webkit-box-orient: vertical;
  -webkit-line-clamp: 4;
}

.ddt-lab-panel button.ddt-lab-link {
  background: none;
  border: none;
  color: var(--jp-content-link-color);
  cursor: pointer;
  font: inherit;
  margin: 0 8px 0 0;
  overflow-wrap: anywhere;
  padding: 2px 0;
  text-align: left;
  text-decoration: underline;
}

.ddt-lab-finding {
  border-left: 4px solid var(--jp-border-color1);
  margin: 8px 0;
  padding: 0 0 0 10px;
}

.ddt-lab-places {
  margin: 4px 0;
  padding-left: 18px;
}

.jp-InputArea:has(> .ddt-lab-badge) {
  position: relative;
}

.jp-InputArea:has(> .ddt-lab-badge) > .jp-InputArea-editor {
  padding-bottom: 15px; /* where the badge covers no code and no note */
}

.ddt-lab-badge {
  background: var(--jp-layout-color1);
  border: 1px solid var(--jp-border-color2);
  border-left: 4px solid var(--jp-border-color1);
  bottom: 1px;
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size0);
  line-height: 1.6;
  padding: 0 6px;
  pointer-events: none;
  position: absolute;
  right: 1px;
}

.ddt-lab-note {
  color: var(--jp-ui-font-color1);
  font-style: italic;
  padding-left: 3ch;
  white-space: pre-wrap;
}

.ddt-lab-snapshot {
  background: var(--jp-layout-color0);
  color: var(--jp-content-font-color1);
  overflow: auto;
  padding: 12px 20px;
}

.ddt-lab-snapshot > details > summary {
  color: var(--jp-content-link-color);
  cursor: pointer;
  font-size: var(--jp-content-font-size1);
  margin: 2px 0;
}

/* Else the area below a document opens as a line of tabs. */
.ddt-lab-below {
  min-height: 240px;
}

/* A table that is wider than the document is scrolled: its columns do not shrink to letters. */
.ddt-lab-snapshot .jp-RenderedHTMLCommon tbody td {
  min-width: 4em;
  overflow-wrap: break-word;
}

.ddt-lab-earlier {
  margin: 14px 0 4px;
}

.ddt-lab-earlier summary {
  cursor: pointer;
}

.ddt-lab-share meter {
  height: 0.8em;
  vertical-align: middle;
  width: 5em;
}

.ddt-lab-picker {
  align-items: center;
  display: flex;
}

.ddt-lab-picker > button {
  align-items: center;
  background: transparent;
  border: none;
  border-radius: 2px;
  color: var(--jp-ui-font-color1);
  cursor: pointer;
  display: flex;
  font-size: var(--jp-ui-font-size1);
  height: 24px;
  padding: 0 6px;
  white-space: nowrap;
}

.ddt-lab-picker > button:hover {
  background: var(--jp-layout-color2);
}

.ddt-lab-picker button:focus-visible,
.ddt-lab-picker input:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -1px;
}

.ddt-lab-picker-list {
  background: var(--jp-layout-color1);
  border: 1px solid var(--jp-border-color1);
  box-shadow: var(--jp-elevation-z6);
  color: var(--jp-ui-font-color1);
  inset: auto;
  margin: 0;
  max-height: 60vh;
  overflow: auto;
  padding: 6px 12px 6px 6px;
  position: fixed;
}

.ddt-lab-picker-list label {
  display: block;
  line-height: 24px;
  white-space: nowrap;
}

/* A long table has no styles in its cells, and JupyterLab's sanitizer drops the view's style sheet. */
.ddt-lab-snapshot .jp-RenderedHTMLCommon .ddt-long td {
  padding: 2px 14px 2px 0;
  text-align: left;
  vertical-align: top;
  white-space: normal;
}

.ddt-lab-timeline {
  padding: 4px 0;
}
`,""]),e.d(o,{},{A:d})},38(t,o,e){var r=e(36),a=e.n(r),n=e(37),d=(e.n(n))()(a());d.push([t.id,`.ddt-lab-output {
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  display: flex;
  flex-direction: column;
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  line-height: 1.45;
  min-height: 220px;
  min-width: 220px;
  padding: 4px 8px 0;
}

.ddt-lab-output .ddt-lab-controls {
  flex: none;
  gap: 4px 10px;
}

.ddt-lab-output input[type='text'],
.ddt-lab-output input[type='search'] {
  background: var(--jp-input-background);
  border: 1px solid var(--jp-border-color1);
  color: var(--jp-ui-font-color1);
  font: inherit;
  height: 26px;
  padding: 0 6px;
}

.ddt-lab-output input.ddt-lab-output-ranks {
  width: 7.5em;
}

.ddt-lab-output input.ddt-lab-output-search {
  width: 13em;
}

.ddt-lab-output-found {
  min-width: 9.5em;
}

.ddt-lab-output input[aria-invalid='true'] {
  border: 2px solid #d55e00;
}

.ddt-lab-output input::placeholder {
  color: var(--jp-ui-font-color1);
  opacity: 0.75;
}

.ddt-lab-output input[type='checkbox'] {
  vertical-align: middle;
}

.ddt-lab-output button.ddt-lab-button {
  background: var(--jp-layout-color2);
  border: 1px solid var(--jp-border-color1);
  color: var(--jp-ui-font-color1);
  height: 26px;
  line-height: 24px;
  padding: 0 10px;
}

.ddt-lab-output button.ddt-lab-button:disabled {
  opacity: 0.5;
}

.ddt-lab-output :focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.ddt-lab-output-tabs {
  border-bottom: 1px solid var(--jp-border-color1);
  display: flex;
  flex: none;
  overflow-x: auto;
  scrollbar-width: thin;
}

.ddt-lab-output-tab {
  background: none;
  border: none;
  border-bottom: 3px solid transparent;
  color: var(--jp-ui-font-color1);
  cursor: pointer;
  flex: none;
  font: inherit;
  padding: 4px 10px;
}

.ddt-lab-output-tab[aria-selected='true'] {
  border-bottom-color: var(--jp-brand-color1);
  font-weight: bold;
}

.ddt-lab-output > .ddt-lab-line {
  flex: none;
}

.ddt-lab-output-lines {
  background: var(--jp-layout-color0);
  border-top: 1px solid var(--jp-border-color2);
  color: var(--jp-content-font-color1);
  flex: 1;
  min-height: 0;
  overflow: auto;
  overflow-anchor: none;
  position: relative;
}

/* Every line has one height: where a line stands follows from its number. */
.ddt-lab-output-line {
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
  height: calc(1.4 * var(--jp-code-font-size));
  line-height: calc(1.4 * var(--jp-code-font-size));
  min-width: 100%;
  overflow: hidden;
  white-space: pre;
  width: max-content;
}

.ddt-lab-output-probe {
  position: absolute;
  visibility: hidden;
}

.ddt-lab-output-line.ddt-mod-current {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.ddt-lab-output-rank {
  border-left: 5px solid;
  display: inline-block;
  font-weight: bold;
  min-width: 8ch;
  padding-left: 6px;
}

.ddt-lab-output-source {
  border: 1px solid currentcolor;
  border-radius: 3px;
  font-size: 85%;
  padding: 0 4px;
}

.ddt-lab-output-line mark {
  background: #e69f00;
  color: #000;
}
`,""]),e.d(o,{},{A:d})},37(t){t.exports=function(t){var o=[];return o.toString=function(){return this.map(function(o){var e="",r=void 0!==o[5];return o[4]&&(e+="@supports (".concat(o[4],") {")),o[2]&&(e+="@media ".concat(o[2]," {")),r&&(e+="@layer".concat(o[5].length>0?" ".concat(o[5]):""," {")),e+=t(o),r&&(e+="}"),o[2]&&(e+="}"),o[4]&&(e+="}"),e}).join("")},o.i=function(t,e,r,a,n){"string"==typeof t&&(t=[[null,t,void 0]]);var d={};if(r)for(var i=0;i<this.length;i++){var l=this[i][0];null!=l&&(d[l]=!0)}for(var p=0;p<t.length;p++){var c=[].concat(t[p]);r&&d[c[0]]||(void 0!==n&&(void 0===c[5]||(c[1]="@layer".concat(c[5].length>0?" ".concat(c[5]):""," {").concat(c[1],"}")),c[5]=n),e&&(c[2]&&(c[1]="@media ".concat(c[2]," {").concat(c[1],"}")),c[2]=e),a&&(c[4]?(c[1]="@supports (".concat(c[4],") {").concat(c[1],"}"),c[4]=a):c[4]="".concat(a)),o.push(c))}},o}},36(t){t.exports=function(t){return t[1]}},29(t){var o=[];function e(t){for(var e=-1,r=0;r<o.length;r++)if(o[r].identifier===t){e=r;break}return e}function r(t,r){for(var a={},n=[],d=0;d<t.length;d++){var i=t[d],l=r.base?i[0]+r.base:i[0],p=a[l]||0,c="".concat(l," ").concat(p);a[l]=p+1;var s=e(c),u={css:i[1],media:i[2],sourceMap:i[3],supports:i[4],layer:i[5]};if(-1!==s)o[s].references++,o[s].updater(u);else{var b=function(t,o){var e=o.domAPI(o);return e.update(t),function(o){o?(o.css!==t.css||o.media!==t.media||o.sourceMap!==t.sourceMap||o.supports!==t.supports||o.layer!==t.layer)&&e.update(t=o):e.remove()}}(u,r);r.byIndex=d,o.splice(d,0,{identifier:c,updater:b,references:1})}n.push(c)}return n}t.exports=function(t,a){var n=r(t=t||[],a=a||{});return function(t){t=t||[];for(var d=0;d<n.length;d++){var i=e(n[d]);o[i].references--}for(var l=r(t,a),p=0;p<n.length;p++){var c=e(n[p]);0===o[c].references&&(o[c].updater(),o.splice(c,1))}n=l}}},31(t){var o={};t.exports=function(t,e){var r=function(t){if(void 0===o[t]){var e=document.querySelector(t);if(window.HTMLIFrameElement&&e instanceof window.HTMLIFrameElement)try{e=e.contentDocument.head}catch(t){e=null}o[t]=e}return o[t]}(t);if(!r)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");r.appendChild(e)}},33(t){t.exports=function(t){var o=document.createElement("style");return t.setAttributes(o,t.attributes),t.insert(o,t.options),o}},32(t,o,e){t.exports=function(t){var o=e.nc;o&&t.setAttribute("nonce",o)}},30(t){t.exports=function(t){if("u"<typeof document)return{update:function(){},remove:function(){}};var o=t.insertStyleElement(t);return{update:function(e){var r,a,n;r="",e.supports&&(r+="@supports (".concat(e.supports,") {")),e.media&&(r+="@media ".concat(e.media," {")),(a=void 0!==e.layer)&&(r+="@layer".concat(e.layer.length>0?" ".concat(e.layer):""," {")),r+=e.css,a&&(r+="}"),e.media&&(r+="}"),e.supports&&(r+="}"),(n=e.sourceMap)&&"u">typeof btoa&&(r+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(n))))," */")),t.styleTagTransform(r,o,t.options)},remove:function(){var t;null===(t=o).parentNode||t.parentNode.removeChild(t)}}}},34(t){t.exports=function(t,o){if(o.styleSheet)o.styleSheet.cssText=t;else{for(;o.firstChild;)o.removeChild(o.firstChild);o.appendChild(document.createTextNode(t))}}},28(t,o,e){var r=e(29),a=e.n(r),n=e(30),d=e.n(n),i=e(31),l=e.n(i),p=e(32),c=e.n(p),s=e(33),u=e.n(s),b=e(34),f=e.n(b),h=e(35),v={};v.styleTagTransform=f(),v.setAttributes=c(),v.insert=l().bind(null,"head"),v.domAPI=d(),v.insertStyleElement=u(),a()(h.A,v),h.A&&h.A.locals&&h.A.locals;var x=e(38),g={};g.styleTagTransform=f(),g.setAttributes=c(),g.insert=l().bind(null,"head"),g.domAPI=d(),g.insertStyleElement=u(),a()(x.A,g),x.A&&x.A.locals&&x.A.locals}}]);