// Answers a list of questions about data sets with the playground's own functions.
"use strict";
const path = require("path");
const source = process.argv[2];
for (const name of ["limits", "euclidean", "natural", "kernels"]) {
  require(path.join(source, "js", `${name}.js`));
}
const ng = globalThis.natgrad;

const answers = {
  separability: ({ rows }) => ng.separability(rows).kind,
  limits: ({ rows }) => ng.limits(rows),
  gradientFlow: ({ rows, depth, scale, times }) => ng.gradientFlow(rows, depth, scale, times).betas,
  naturalFlow: ({ rows, times }) => {
    const found = ng.separability(rows);
    const vertex = found.kind === "separable" ? ng.limits(rows).vertex : null;
    return ng.naturalFlow(rows, found, vertex, times);
  },
  between: ({ rows, depth, scale, times }) => {
    const flow = ng.gradientFlow(rows, depth, scale, [1e12]);
    return times.map((t) => ng.between(flow, Math.log1p(t)));
  },
  responses: (given) => ng.responses(given),
};

const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(asked.map(([what, given]) => answers[what](given))));
