/** What the router takes from the Actor objects: which UID a name has now, and the node in its assignment. */
export interface KnownActor {
  readonly uid: string;
  readonly nodeName: string | undefined;
}

/** Names of all actors, as the API server had them last; `key` is "namespace/name". */
export interface ActorNames {
  readonly isSynced: boolean;
  readonly synced: Promise<void>;
  find(key: string): KnownActor | undefined;
}
