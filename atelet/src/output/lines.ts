/** What of a line is passed on in one piece; longer ones are cut. Two of it fit into what containerd takes as one line. */
export const MAX_LINE_BYTES = 8 * 1024;

const newline = 0x0a;

/** What the cluster's log collector is to know of a line's origin. */
export interface LineLabels {
  actor: string;
  namespace: string;
  template: string;
  uid: string;
}

/** Complete lines of a piece of output as JSON lines, and how many of the piece's bytes they stand for. */
export interface CutLines {
  json: string;
  consumedBytes: number;
}

/**
 * Cuts output into JSON lines of the collector. The last line stays if it has no end yet, unless it is too long to wait
 * for that or `flush` says that none will come. A piece of a line has `partial: true`; what is no UTF-8 is replaced.
 * @param time RFC 3339, of when the output was read: programs don't say when they wrote it.
 */
export function cutLines(output: Buffer, labels: LineLabels, time: string, options: { flush: boolean }): CutLines {
  const before = `{"time":${JSON.stringify(time)},"stream":"stdout","log":`;
  const { actor, namespace, template, uid } = labels;
  const after = `,${JSON.stringify({ actor, namespace, template, uid }).slice(1)}\n`;
  let json = "";
  let from = 0;
  const add = (end: number, partial: boolean): void => {
    const text = JSON.stringify(output.toString("utf8", from, end));
    json += `${before}${text}${partial ? ',"partial":true' : ""}${after}`;
  };
  while (from < output.length) {
    const found = output.indexOf(newline, from);
    const end = found === -1 ? output.length : found;
    if (end - from > MAX_LINE_BYTES) {
      const cut = characterStart(output, from + MAX_LINE_BYTES);
      add(cut, true);
      from = cut;
    } else if (found !== -1) {
      add(found, false);
      from = found + 1;
    } else if (options.flush) {
      add(end, true);
      from = end;
    } else break;
  }
  return { json, consumedBytes: from };
}

/** The nearest place at or before `at` that does not cut a UTF-8 character; `at` itself where there is no UTF-8. */
function characterStart(output: Buffer, at: number): number {
  for (let place = at; place > at - 4; place -= 1) {
    if (((output[place] ?? 0) & 0xc0) !== 0x80) return place;
  }
  return at;
}
