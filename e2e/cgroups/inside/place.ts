/** Where things are in the guest; guest-image.ts puts them there, inside/ uses them. */
export const insidePaths = {
  node: "/bin/node",
  script: "/inside.mjs",
  runsc: "/bin/runsc",
  runc: "/bin/runc",
  programs: { glutton: "/programs/glutton", counter: "/programs/counter" },
  /** On the disk, the same in the machine and its containers. */
  shared: "/shared",
} as const;

/** Begins each line of results on the guest's console. */
export const RESULT_MARK = "@@result ";

export interface GuestResult {
  name: string;
  /** Why it failed. */
  error?: string;
}
