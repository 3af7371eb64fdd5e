const prefix = /^(?:ACTOR_STATE|SNAPSHOT_STORAGE_STATE)_/;

/** A state as people read it: "ACTOR_STATE_RUNNING" → "RUNNING"; "-" where there is none. */
export function shortState(state: string | undefined): string {
  return state?.replace(prefix, "") ?? "-";
}
