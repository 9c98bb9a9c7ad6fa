"use strict";(self.rspackChunkddt_notebook=self.rspackChunkddt_notebook||[]).push([[263],{538(t,e,o){var r=o(43),n=o.n(r),a=o(208),i=o.n(a),l=o(980),d=o.n(l),p=o(619),c=o.n(p),s=o(735),u=o.n(s),f=o(172),b=o.n(f),v=o(748),h={};h.styleTagTransform=b(),h.setAttributes=c(),h.insert=d().bind(null,"head"),h.domAPI=i(),h.insertStyleElement=u(),n()(v.A,h),v.A&&v.A.locals&&v.A.locals},748(t,e,o){var r=o(418),n=o.n(r),a=o(443),i=(o.n(a))()(n());i.push([t.id,`.ddt-lab-panel {
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
  font-weight: bold;
  padding: 1px 6px;
  white-space: nowrap;
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

.ddt-lab-earlier {
  margin: 14px 0 4px;
}

.ddt-lab-earlier summary {
  cursor: pointer;
}
`,""]),o.d(e,{},{A:i})},443(t){t.exports=function(t){var e=[];return e.toString=function(){return this.map(function(e){var o="",r=void 0!==e[5];return e[4]&&(o+="@supports (".concat(e[4],") {")),e[2]&&(o+="@media ".concat(e[2]," {")),r&&(o+="@layer".concat(e[5].length>0?" ".concat(e[5]):""," {")),o+=t(e),r&&(o+="}"),e[2]&&(o+="}"),e[4]&&(o+="}"),o}).join("")},e.i=function(t,o,r,n,a){"string"==typeof t&&(t=[[null,t,void 0]]);var i={};if(r)for(var l=0;l<this.length;l++){var d=this[l][0];null!=d&&(i[d]=!0)}for(var p=0;p<t.length;p++){var c=[].concat(t[p]);r&&i[c[0]]||(void 0!==a&&(void 0===c[5]||(c[1]="@layer".concat(c[5].length>0?" ".concat(c[5]):""," {").concat(c[1],"}")),c[5]=a),o&&(c[2]&&(c[1]="@media ".concat(c[2]," {").concat(c[1],"}")),c[2]=o),n&&(c[4]?(c[1]="@supports (".concat(c[4],") {").concat(c[1],"}"),c[4]=n):c[4]="".concat(n)),e.push(c))}},e}},418(t){t.exports=function(t){return t[1]}},43(t){var e=[];function o(t){for(var o=-1,r=0;r<e.length;r++)if(e[r].identifier===t){o=r;break}return o}function r(t,r){for(var n={},a=[],i=0;i<t.length;i++){var l=t[i],d=r.base?l[0]+r.base:l[0],p=n[d]||0,c="".concat(d," ").concat(p);n[d]=p+1;var s=o(c),u={css:l[1],media:l[2],sourceMap:l[3],supports:l[4],layer:l[5]};if(-1!==s)e[s].references++,e[s].updater(u);else{var f=function(t,e){var o=e.domAPI(e);return o.update(t),function(e){e?(e.css!==t.css||e.media!==t.media||e.sourceMap!==t.sourceMap||e.supports!==t.supports||e.layer!==t.layer)&&o.update(t=e):o.remove()}}(u,r);r.byIndex=i,e.splice(i,0,{identifier:c,updater:f,references:1})}a.push(c)}return a}t.exports=function(t,n){var a=r(t=t||[],n=n||{});return function(t){t=t||[];for(var i=0;i<a.length;i++){var l=o(a[i]);e[l].references--}for(var d=r(t,n),p=0;p<a.length;p++){var c=o(a[p]);0===e[c].references&&(e[c].updater(),e.splice(c,1))}a=d}}},980(t){var e={};t.exports=function(t,o){var r=function(t){if(void 0===e[t]){var o=document.querySelector(t);if(window.HTMLIFrameElement&&o instanceof window.HTMLIFrameElement)try{o=o.contentDocument.head}catch(t){o=null}e[t]=o}return e[t]}(t);if(!r)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");r.appendChild(o)}},735(t){t.exports=function(t){var e=document.createElement("style");return t.setAttributes(e,t.attributes),t.insert(e,t.options),e}},619(t,e,o){t.exports=function(t){var e=o.nc;e&&t.setAttribute("nonce",e)}},208(t){t.exports=function(t){if("u"<typeof document)return{update:function(){},remove:function(){}};var e=t.insertStyleElement(t);return{update:function(o){var r,n,a;r="",o.supports&&(r+="@supports (".concat(o.supports,") {")),o.media&&(r+="@media ".concat(o.media," {")),(n=void 0!==o.layer)&&(r+="@layer".concat(o.layer.length>0?" ".concat(o.layer):""," {")),r+=o.css,n&&(r+="}"),o.media&&(r+="}"),o.supports&&(r+="}"),(a=o.sourceMap)&&"u">typeof btoa&&(r+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),t.styleTagTransform(r,e,t.options)},remove:function(){var t;null===(t=e).parentNode||t.parentNode.removeChild(t)}}}},172(t){t.exports=function(t,e){if(e.styleSheet)e.styleSheet.cssText=t;else{for(;e.firstChild;)e.removeChild(e.firstChild);e.appendChild(document.createTextNode(t))}}}}]);