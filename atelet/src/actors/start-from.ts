/** A prefix of the store that a Snapshot object owns (lib/proto …/types.proto). */
export interface StoredPrefix {
  clusterUid: string;
  namespaceUid: string;
  /** Of the Snapshot object. */
  uid: string;
  /** <namespace>/<name> of the Snapshot object, for messages. */
  name: string;
  store: string;
}

/** What a person, or an upgrade, chose to start from, instead of the newest usable generation. */
export type StartFrom =
  | { kind: "generation"; generation: number }
  /** A cold start with the newest volumes. */
  | { kind: "boot" }
  | { kind: "tag"; prefix: StoredPrefix };
