/* Files on their way to the server, and its events on their way back.

   Guarantee: every file ends with one call of `told`: an answer, or a failure. A refusal is waited out for as long as the
   server says, a few times; `told` hears of that too. */

const FILES_PER_JOB = 32, BYTES_PER_JOB = 4 << 20, ATTEMPTS = 6;

/* Send files, a few at a time. `told(file, event)` gets {kind: "asked" | "file" | "refused" | "failed", ...fields}. */
export async function send(files, told) {
  for (let attempt = 1; files.length; attempt++) {
    const refused = [];
    let pause = 0;
    const answered = (file, event, fields) => {
      const again = event === "failed" && fields.status === 503 && attempt < ATTEMPTS;
      if (again) {
        refused.push(file);
        pause = Math.max(pause, 1, fields.retry_after || 1);
      }
      told(file, { kind: again ? "refused" : event, ...fields });
    };
    for (const job of jobsOf(files)) {
      for (const file of job) told(file, { kind: "asked" });
      await one(job, answered);
    }
    for (let left = pause; left > 0; left--) {
      for (const file of refused) told(file, { kind: "refused", retry_in: left });
      await new Promise((done) => setTimeout(done, 1000));
    }
    files = refused;
  }
}

/* One request. Calls `answered` once for each file, as soon as that is known. */
async function one(files, answered) {
  const form = new FormData();
  for (const file of files) form.append("files", file, file.name);
  const left = new Map(files.entries());
  const failAll = (fields) => { for (const file of left.values()) answered(file, "failed", fields); };
  try {
    const response = await fetch("/jobs", { method: "POST", body: form });
    if (!response.ok) {
      const body = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
      failAll({ ...body, status: response.status, retry_after: Number(response.headers.get("Retry-After")) });
      return;
    }
    for await (const { event, fields } of events(response.body)) {
      const file = left.get(fields.index);
      if (file !== undefined && left.delete(fields.index)) answered(file, event, fields);
    }
    failAll({ error: "the server ended the answer early" });
  } catch (error) {
    failAll({ error: `the server cannot be reached: ${error.message}` });
  }
}

function jobsOf(files) {
  const jobs = [];
  let bytes = Infinity;
  for (const file of files) {
    if (bytes + file.size > BYTES_PER_JOB || jobs.at(-1).length >= FILES_PER_JOB) {
      jobs.push([]);
      bytes = 0;
    }
    jobs.at(-1).push(file);
    bytes += file.size;
  }
  return jobs;
}

/* Server-sent events of a response's body. EventSource cannot POST. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      if (data !== undefined) yield { event: field("event") ?? "message", fields: JSON.parse(data) };
    }
  }
}
