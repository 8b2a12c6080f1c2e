// Small helpers to draw: elements that are made once and then only changed.
"use strict";
(function (ng) {
  const SPACE = "http://www.w3.org/2000/svg";

  ng.svg = function (parent, tag, attributes = {}, text) {
    const element = document.createElementNS(SPACE, tag);
    ng.set(element, attributes);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };

  ng.set = function (element, attributes) {
    for (const key in attributes) {
      const value = String(attributes[key]);
      if (element.getAttribute(key) !== value) element.setAttribute(key, value);
    }
    return element;
  };

  ng.say = function (element, text) {
    if (element.textContent !== text) element.textContent = text;
  };

  ng.fixed = function (v, digits = 1) {
    const text = v.toFixed(digits);
    return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−"); // never −0.0
  };

  const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹", ".": "·" };
  ng.power = (v) => `10${[...String(Number(v.toFixed(2)))].map((c) => RAISED[c]).join("")}`;

  ng.NAMES = {
    1: "EGD, depth 1", 2: "EGD, depth 2", 3: "EGD, depth 3", 4: "EGD, depth 4", n: "NGD, any depth",
    a: "ℓ2 max margin", b: "ℓ1 max margin", c: "ℓ⅔ max margin", d: "ℓ½ max margin", v: "corner of the LP",
  };
  ng.BADGES = { 1: "1", 2: "2", 3: "3", 4: "4", n: "N" };
})((globalThis.natgrad ??= {}));
