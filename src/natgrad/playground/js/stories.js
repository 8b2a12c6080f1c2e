// Data sets with something to say. A story sets the points, the time and the lines that are shown.
"use strict";
(function (ng) {
  // natgrad.data.separable.planar: three supporting points and an ellipse for each class.
  function planar(n) {
    const rows = [[1, 0.5], [0.7, 1.85], [2.3, -1.2]];
    const rest = n - rows.length;
    for (let k = 0; k < rest; k++) {
      const radius = Math.sqrt((k + 0.5) / rest);
      const angle = k * Math.PI * (3 - Math.sqrt(5));
      rows.push([3.4 + 1.2 * radius * Math.cos(angle), 0.3 + 1.6 * radius * Math.sin(angle)]);
    }
    return rows.map(([x, y], i) => (i % 2 ? { x: -x, y: -y, label: -1 } : { x, y, label: 1 }));
  }
  const rows = (list) => list.map(([x, y, label = 1]) => ({ x, y, label }));

  ng.STORIES = {
    fig2: {
      name: "Depth turns the line",
      points: planar(40),
      view: 5.2,
      time: 12,
      scale: -1,
      shown: "1234nabv",
      title: "Same data, different answers.",
      text: "These are the data of Figure 2 in “Depth Without the Magic”. As the network gets deeper, EGD turns its line toward an axis: deep networks prefer sparse solutions. NGD gives the same answer at every depth.",
    },
    far: {
      name: "Far points pull NGD",
      points: rows([[1, 0.5], [-0.7, -1.85, -1], [2.3, -1.2], [4.2, -0.6], [-4.4, 0.3, -1]]),
      view: 6.5,
      time: 12,
      scale: -1,
      shown: "nabv",
      title: "NGD is not a maximum margin, in any norm.",
      text: "Margins look only at the nearest points. NGD ends in a corner that the sum of all points selects. Drag the far point on the right straight up to the top: the dashed margins stay where they are, and NGD jumps to another corner.",
    },
    d1: {
      name: "Other coordinates",
      points: rows([[2, -3], [1, -4]]),
      view: 8,
      time: 12,
      scale: -1,
      shown: "1nav",
      title: "The maximum margin depends on your units.",
      text: "Two points, as in appendix D. NGD gives both the same margin. The ℓ2 line gives margins 1 and 1.08. Now describe the same points in other coordinates.",
      then: { story: "d2", label: "Apply x ↦ A x" },
    },
    d2: {
      points: rows([[-4, -2], [-7, -1]]),
      view: 8,
      time: 12,
      scale: -1,
      shown: "1nav",
      title: "Same points after x ↦ A x, with A = (1 2; −1 0).",
      text: "NGD still gives both points the same margin: it classifies as before. The ℓ2 line now gives margins 1 and 1.5, so it is a different classifier. (The paper's own example has one point and does not show this.)",
      then: { story: "d1", label: "Back to x" },
    },
    mixed: {
      name: "No line separates",
      points: rows([
        [1.4, 1.2], [2.2, 0.3], [0.8, 2.1], [2.9, 1.9], [1.7, -0.9], [-0.6, 0.5],
        [-1.2, -1.6, -1], [-2.4, -0.5, -1], [-0.4, -2.2, -1], [-2.7, -1.8, -1], [0.9, 0.7, -1], [-1.9, 0.8, -1],
      ]),
      view: 4.5,
      time: 4,
      scale: -1,
      shown: "1234n",
      title: "No line through the origin separates these points.",
      text: "The loss then has a finite minimum. EGD at every depth and NGD all end there: move the time and watch the lines meet. There is no margin to maximize, so no dashed limits.",
    },
  };

  ng.startOf = function (name) {
    const story = ng.STORIES[name];
    return {
      story: name,
      points: story.points.map((p) => ({ ...p })),
      view: story.view,
      time: story.time,
      scale: story.scale,
      shown: new Set(story.shown),
      selected: 0,
    };
  };
})((globalThis.natgrad ??= {}));
