/** One thing that was looked at. */
export interface Finding {
  /** problem: something does not work; warning: it works, but not as it should, or could not be looked at. */
  level: "ok" | "warning" | "problem";
  what: string;
  /** What to do; with every level but ok. */
  fix?: string;
}

export const ok = (what: string): Finding => ({ level: "ok", what });
export const warning = (what: string, fix: string): Finding => ({ level: "warning", what, fix });
export const problem = (what: string, fix: string): Finding => ({ level: "problem", what, fix });
