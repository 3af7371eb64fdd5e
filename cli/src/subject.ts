/** A message of the operator behind words that name its actor already: without naming it again. */
export function withoutSubject(key: string, message: string): string {
  const subject = `Actor ${key}`;
  if (message.startsWith(`${subject}: `)) return message.slice(subject.length + 2);
  return message.startsWith(`${subject} `) ? `it${message.slice(subject.length)}` : message;
}
