// Browsers start no worker for a page that was opened as a file. There the search's worker is a hidden frame instead,
// which has what the search uses of a worker: messages both ways, and an end.
if (location.protocol === "file:") {
  window.Worker = class {
    #frame = document.createElement("iframe");
    #waiting = [];

    constructor(url) {
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html><title>search</title>";
      this.#frame.onload = () => {
        const inside = this.#frame.contentWindow;
        inside.postMessage = (data) => setTimeout(() => this.onmessage?.(new MessageEvent("message", { data })));
        const script = inside.document.createElement("script");
        script.src = new URL(url, document.baseURI);
        script.onload = () => {
          const waiting = this.#waiting;
          this.#waiting = null;
          waiting.forEach((data) => this.postMessage(data));
        };
        script.onerror = (event) => this.onerror?.(event);
        inside.document.body.append(script);
      };
      document.documentElement.append(this.#frame);
    }

    postMessage(data) {
      if (this.#waiting) this.#waiting.push(data);
      else this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
