/** Text of a program's choice, for a terminal: control characters, which could move its cursor or name its window, are shown as \xNN. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`);
}
