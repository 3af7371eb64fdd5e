/** A place for one actor in the node's network: a namespace with eth0, reached at nodeAddress from this pod. */
export interface Slot {
  /** 1…65,000; also the veth's name ("a<index>"). */
  index: number;
  netnsPath: string;
  /** 100.64.x.y, unique in the pod; the program itself always sees 169.254.17.2. One that was parked has another index. */
  nodeAddress: string;
}

/** The one image of memory whose first restore may go on with the connections of a parked address. */
export interface SleepingImage {
  /** UID of the actor. */
  actor: string;
  generation: number;
  epoch: number;
}

export interface PublishedPort {
  containerPort: number;
  /** Port on the pod's address. Random, not reused soon: a stale route meets a closed port. */
  outerPort: number;
}

/** The actors' network of one node, all in the kernel (nftables); no process in the data path. */
export interface ActorNetwork {
  /**
   * Installs the table, adopts what an earlier atelet left and removes what `keep` does not name: indices of slots, and
   * UIDs of actors whose address may stay parked.
   */
  start(keep: { slots: readonly number[]; parked: readonly string[] }): Promise<void>;
  /** A slot with nothing in it, from a pool of ready ones. Blocked until `open`. */
  acquire(): Promise<Slot>;
  /** The slot of an adopted sandbox. */
  adopt(index: number): Slot;
  /** Removes all traces; the slot goes back to the pool with a fresh namespace. */
  release(slot: Slot): Promise<void>;
  /** Puts 169.254.17.2 back on the interior eth0; the runtime takes it off at every start and restore. */
  putAddress(slot: Slot): Promise<void>;
  /** Maps a fresh random outer port to each container port. */
  publish(slot: Slot, containerPorts: readonly number[]): Promise<PublishedPort[]>;
  /** The published ports of an adopted slot, as the kernel has them. */
  published(slot: Slot): Promise<PublishedPort[]>;
  /** Refuses new connections from outside; open ones go on. Undone by publish. */
  unpublish(slot: Slot): Promise<void>;
  /** Drops every packet from and to the actor. Peers are told that it can't be reached now, and so try again soon. */
  block(slot: Slot): Promise<void>;
  open(slot: Slot): Promise<void>;
  /**
   * Keeps the address of a blocked slot, with the connections that its sleeping actor began, apart from the slot, which
   * is then to be released. At most one of an actor, and a limited number at all: the oldest is given up for a new one.
   */
  park(slot: Slot, image: SleepingImage): Promise<void>;
  /**
   * Gives a blocked slot that holds nothing the address that is parked for this very image: once. Packets pass from then
   * on, but the bare namespace's answers, until it is opened.
   * @returns the slot with that address; undefined if there is none.
   */
  unpark(slot: Slot, image: SleepingImage): Promise<Slot | undefined>;
  /** Forgets what is parked for an actor: its peers get a reset when they next send. No error if there is nothing. */
  giveUp(actor: string): Promise<void>;
  /** How many addresses are parked. */
  readonly parkedCount: number;
  /** The addresses that an earlier atelet had allowed, as `start` found them. */
  routersBefore(): readonly string[];
  /** Only these addresses may open connections to actors; removal cuts what is open. */
  setRouters(addresses: readonly string[]): Promise<void>;
  /** Leaves everything in place for the next atelet. */
  close(): Promise<void>;
  /** Removes everything (last shutdown). */
  destroy(): Promise<void>;
}
