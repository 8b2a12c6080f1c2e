// The one message that fits what is shown.
"use strict";
(function (ng) {
  const degrees = (v) => `${ng.fixed(v, Math.abs(v) < 1 ? 2 : 1)}°`;

  // The angle between two lines, 0 to 90 degrees.
  ng.apart = function (a, b) {
    const cross = Math.abs(a[0] * b[1] - a[1] * b[0]);
    const dot = Math.abs(a[0] * b[0] + a[1] * b[1]);
    return (Math.atan2(cross, dot) * 180) / Math.PI;
  };

  function separable({ betas, limits, time, shown }) {
    const turn = ng.apart(betas[1], betas[4]);
    const left = ng.apart(betas.n, limits.vertex.b);
    const one = ng.apart(limits.margins[1].b, limits.vertex.b);
    const who = limits.vertex.rows.map((i) => i + 1);
    const corner =
      who.length > 1
        ? `its corner, where points ${who[1]} and ${who[0]} (ringed) have the same margin and no other point has less`
        : `its limit, which is set by point ${who[0]} (ringed)`;
    const reached = left < 0.05 ? "has reached" : `is ${degrees(left)} away from`;
    const depth = `depth turns EGD's line by ${degrees(turn)}, and NGD's not at all`;
    const far = `NGD's line is ${degrees(ng.apart(betas.n, limits.margins[0].b))} from the ℓ2 margin`;
    const turned = ng.LINES.some((k) => k !== "n" && shown.has(k));
    const relation = one < 0.05 ? "Here ℓ1 has the same corner." : `The ℓ1 margin is ${degrees(one)} away.`;
    return {
      title: `At t = ${ng.power(time)}, ${turned ? depth : far}.`,
      text: `NGD ${reached} ${corner}. ${relation}`,
    };
  }

  const FEW = {
    title: "Add a point.",
    text: "Click anywhere in the plane. The lines appear with the first point.",
  };
  const MIXED = {
    title: "No line through the origin separates these points.",
    text: "The loss then has a finite minimum. EGD at every depth and NGD all end there, so the lines meet as time grows. There is no margin to maximize, and no dashed limit.",
  };
  const STILL = {
    title: "These points cancel each other.",
    text: "At zero weights their pulls add up to nothing, so no method moves, and there is no line. Move one of them a little.",
  };
  const EDGE = {
    title: "These points are on the edge.",
    text: "Only one line can separate them, and some points lie exactly on it. Move one of them a little to see either side.",
  };

  ng.describe = function (shown) {
    const story = shown.story && ng.STORIES[shown.story];
    if (story) return story;
    if (!shown.points.length) return FEW;
    if (!shown.betas[1]) return STILL;
    if (shown.found.kind === "not separable") return MIXED;
    return shown.found.kind === "separable" ? separable(shown) : EDGE;
  };
})((globalThis.natgrad ??= {}));
