/** A message behind words that name its actor already: without naming it again. */
export function withoutSubject(key: string, message: string): string {
  for (const subject of [`Actor ${key}`, `actor ${key}`]) {
    if (message.startsWith(`${subject}: `)) return message.slice(subject.length + 2);
    if (message.startsWith(`${subject} `)) return `it${message.slice(subject.length)}`;
    // "node vm: actor default/a ended"
    const at = message.indexOf(`: ${subject} `);
    if (/^node \S+$/.test(message.slice(0, Math.max(0, at)))) {
      return `${message.slice(0, at)}: it${message.slice(at + subject.length + 2)}`;
    }
  }
  return message;
}
