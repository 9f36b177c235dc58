// What a browser alone can tell: that the connection is lost, and since when; and a few keys.
"use strict";
(() => {
  const lost = document.getElementById("lost");
  let last = new Date();

  const say = (words) => {
    lost.textContent = `${words} What you see is from ${last.toLocaleTimeString()}.`;
    lost.hidden = false;
    document.body.classList.add("old");
  };

  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) {
      last = new Date();
      lost.hidden = true;
      document.body.classList.remove("old");
    }
  });
  document.body.addEventListener("htmx:sendError", () => say("The console does not answer."));
  document.body.addEventListener("htmx:timeout", () => say("The console does not answer."));
  const refused = {
    401: "You are not signed in any more: open the page again.",
    403: "You may not look at this any more.",
    404: "What this page shows is not there any more.",
    500: "The console failed; its log says how.",
  };
  document.body.addEventListener("htmx:responseError", ({ detail: { xhr } }) =>
    say(refused[xhr.status] || `The offset service does not answer (status ${xhr.status}).`));

  // Nobody looks at a page in the background, and nothing changes under a hand that writes or a text that is marked.
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    const live = document.getElementById("live");
    const busy = live && live.contains(document.activeElement) && /^(INPUT|SELECT)$/.test(document.activeElement.tagName);
    if (document.hidden || busy || String(document.getSelection())) {
      event.preventDefault();
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      document.getElementById("find").focus();
    } else if (event.key === "n") {
      document.querySelector("a[rel=next]")?.click();
    }
  });
})();
