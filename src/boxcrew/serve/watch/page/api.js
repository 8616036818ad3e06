// Questions to the server. Without the right token the reader is asked for it, once for all that wait.

const TOKEN = "boxcrew.watch.token";
let asking = null;

export async function getJson(path, values = {}) {
  return (await get(path, values)).json();
}

export async function getPicture(run, picture) {
  const answer = await get("/api/picture", { run, name: picture.name, v: picture.version });
  return URL.createObjectURL(await answer.blob());
}

async function get(path, values) {
  const query = new URLSearchParams(values).toString();
  for (;;) {
    const sent = sessionStorage.getItem(TOKEN);
    const headers = sent ? { Authorization: `Bearer ${sent}` } : {};
    const answer = await fetch(query ? `${path}?${query}` : path, { headers, signal: AbortSignal.timeout(20000) });
    if (answer.ok) return answer;
    if (answer.status !== 401) throw Object.assign(new Error(`HTTP ${answer.status}`), { status: answer.status });
    if (sessionStorage.getItem(TOKEN) === sent) await ask(Boolean(sent));
  }
}

function ask(isWrong) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("ask");
    const input = document.getElementById("token");
    document.getElementById("ask-wrong").hidden = !isWrong;
    input.value = "";
    dialog.addEventListener("cancel", (event) => event.preventDefault(), { once: true });
    dialog.addEventListener(
      "close",
      () => {
        sessionStorage.setItem(TOKEN, input.value.replace(/[^!-~]/g, ""));
        asking = null;
        resolve();
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}
