// Ranks the pages of a search: guides first; the reference of names, the internals, decisions and shown files last.
var Scorer = {
  score: ([docname, title, , , score]) => {
    const folder = docname.includes("/") ? docname.split("/")[0] : "start";
    const places = { start: 30, guides: 30, reference: 10, internals: 0, api: -10, decisions: -20, files: -30 };
    const words = (new URLSearchParams(window.location.search).get("q") || "").toLowerCase().trim();
    const heading = title.toLowerCase();
    const isGuide = folder === "start" || folder === "guides";
    const named = isGuide && words ? 15 * heading.includes(words) + 15 * [words, `${words}s`].includes(heading) : 0;
    return score + (places[folder] ?? 0) + named;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
