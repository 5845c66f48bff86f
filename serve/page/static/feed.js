// The feed: server-sent events over fetch, since an EventSource cannot send a key.

export class KeyNeeded extends Error {}

/**
 * Follow the feed until it ends, or `signal` aborts it. `onEvent(name, data)` is called for each event.
 * Throws KeyNeeded where the server wants a key, or another one.
 */
export async function follow(key, signal, onEvent) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const answer = await fetch("/page/events", { headers, signal, cache: "no-store" });
  if (answer.status === 401) throw new KeyNeeded();
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      dispatch(text.slice(0, end), onEvent);
      text = text.slice(end + 2);
    }
  }
}

function dispatch(block, onEvent) {
  let name = "";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) onEvent(name, JSON.parse(data));
}
