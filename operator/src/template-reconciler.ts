import { type Actor, type Snapshot, type Template, templates, type TemplateStatus } from "@substrate/crds/index.ts";
import { type StoredPrefix } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { isConflict, isNotFound, type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { differs } from "./actor-status.ts";
import { type Atelets } from "./atelets.ts";
import { type ConditionFacts, isoSeconds, mergeConditions } from "./conditions.ts";
import { type Environments, templateOwner } from "./environment.ts";
import { type EventRecorder } from "./events.ts";
import { type Freshest } from "./freshest.ts";
import { type OperatorMetrics } from "./metrics.ts";
import { type Golden } from "./golden.ts";
import { buildProgram, type ProgramPart, programPart, revisionOf } from "./program.ts";
import { type ReconcileResult } from "./queue.ts";
import { type Reason, reasonOf } from "./reasons.ts";
import { type Residence } from "./residence.ts";
import { type Revisions } from "./revisions.ts";
import { trialFailure } from "./trial-failure.ts";
import { type FailedTrial, type Trials } from "./trials.ts";

export interface TemplateReconcilerOptions {
  client: KubeClient;
  templates: Freshest<Template>;
  actors: Reflector<Actor>;
  atelets: Atelets;
  residence: Residence;
  snapshots: Reflector<Snapshot>;
  revisions: Revisions;
  environments: Environments;
  trials: Trials;
  golden: Golden;
  events: EventRecorder;
  metrics: OperatorMetrics;
  log: Logger;
  enqueue: (key: string) => void;
}

const noNodeRetryMs = 10_000;

interface Verdict {
  phase: NonNullable<TemplateStatus["phase"]>;
  reason: Reason;
  message: string;
  imageDigest?: string;
  goldenSnapshot?: string;
  golden?: ConditionFacts;
}

/** One Template: each revision of its program is run once on a node before actors may use it. */
export class TemplateReconciler {
  readonly #options: TemplateReconcilerOptions;

  constructor(options: TemplateReconcilerOptions) {
    this.#options = options;
  }

  async reconcile(key: string): Promise<ReconcileResult> {
    const { templates: known, trials } = this.#options;
    const template = known.get(key);
    if (template === undefined || template.metadata.deletionTimestamp !== undefined) return {};
    const part = programPart(template);
    const revision = revisionOf(part);
    const status = template.status;
    if (status?.revision === revision && status.phase === "Ready" && status.imageDigest !== undefined) {
      const { message = "" } = status.conditions?.find(({ type }) => type === "Ready") ?? {};
      return this.#ready(template, part, revision, status.imageDigest, message);
    }
    const { uid = "", generation = 0 } = template.metadata;
    // timeouts and the store are no part of a revision, but may be what it failed for
    const trialKey = `${uid}/${revision}/${generation}`;
    const program = buildProgram(template, part, revision);
    const environment = () => this.#options.environments.resolve(templateOwner(template), part.env);
    const { link, missing } = this.#options.residence.trialNode(template, part.memoryBytes);
    const golden = await this.#prepareGolden(
      template,
      part,
      revision,
      trials.wouldStart(trialKey) ? link?.lease.nodeName : undefined,
    );
    const outcome = trials.ensure(trialKey, link, { program, environment, golden }, () => {
      this.#options.enqueue(key);
    });
    // a failure stands until the next try has ended
    const keptFailure =
      status?.revision === revision && status.observedGeneration === generation && status.phase === "Failed";
    switch (outcome?.kind) {
      case undefined: {
        if (keptFailure) return { requeueAfterMs: noNodeRetryMs };
        const message = `No node takes a trial run now: ${missing}`;
        await this.#write(template, revision, { phase: "Pending", reason: "NoNode", message });
        return { requeueAfterMs: noNodeRetryMs };
      }
      case "running": {
        if (keptFailure) return {};
        const message = `Revision ${revision} is being run once, until its readyz answers`;
        await this.#write(template, revision, { phase: "Validating", reason: "Validating", message });
        return {};
      }
      case "ready": {
        await this.#options.golden.settle(template, revision, outcome);
        const message = `Revision ${revision} answered its readyz in ${outcome.readyMs} ms`;
        const result = await this.#ready(template, part, revision, outcome.imageDigest, message);
        trials.forget(trialKey);
        await this.#prune(template, revision);
        return result;
      }
      case "failed":
        return this.#failed(template, revision, part, outcome);
    }
  }

  async #ready(
    template: Template,
    part: ProgramPart,
    revision: string,
    imageDigest: string,
    message: string,
  ): Promise<ReconcileResult> {
    const { golden, revisions } = this.#options;
    await revisions.save(template, revision, { part, imageDigest });
    const program = buildProgram(template, part, revision, imageDigest);
    const { condition, name, requeueAfterMs } = await golden.reconcile(template, part, program);
    const verdict = {
      phase: "Ready",
      reason: "Validated",
      message,
      imageDigest,
      ...(name === undefined ? {} : { goldenSnapshot: name }),
      ...(condition === undefined ? {} : { golden: condition }),
    } as const;
    await this.#write(template, revision, verdict);
    return requeueAfterMs === undefined ? {} : { requeueAfterMs };
  }

  /** A run that cannot be kept is still a trial. */
  async #prepareGolden(
    template: Template,
    part: ProgramPart,
    revision: string,
    nodeName: string | undefined,
  ): Promise<StoredPrefix | undefined> {
    if (nodeName === undefined) return undefined;
    try {
      return await this.#options.golden.prepare(template, part, revision, nodeName);
    } catch (error) {
      this.#options.log.warn("no golden snapshot is taken", { template: keyOf(template), revision, error });
      return undefined;
    }
  }

  async #failed(
    template: Template,
    revision: string,
    part: ProgramPart,
    { error, rest }: FailedTrial,
  ): Promise<ReconcileResult> {
    const next =
      rest === undefined
        ? "it is not tried again before the Template changes"
        : `it is tried again at ${isoSeconds(rest.untilUnixMs)}`;
    const message = `${trialFailure(part, error)}; ${next}`;
    await this.#write(template, revision, { phase: "Failed", reason: reasonOf(error.code), message });
    await this.#options.golden.abandon(template);
    if (rest === undefined) return {};
    // due, but there is no node to try it now
    return { requeueAfterMs: rest.leftMs > 0 ? rest.leftMs : noNodeRetryMs };
  }

  async #write(template: Template, revision: string, verdict: Verdict): Promise<void> {
    const { client, events, metrics, templates: known } = this.#options;
    const { name, namespace, uid = "", generation = 0 } = template.metadata;
    const ready: ConditionFacts = {
      type: "Ready",
      status: verdict.phase === "Ready" ? "True" : "False",
      reason: verdict.reason,
      message: verdict.message,
    };
    const status: TemplateStatus = {
      observedGeneration: generation,
      revision,
      phase: verdict.phase,
      ...(verdict.imageDigest === undefined ? {} : { imageDigest: verdict.imageDigest }),
      ...(verdict.goldenSnapshot === undefined ? {} : { goldenSnapshot: verdict.goldenSnapshot }),
      conditions: mergeConditions(
        template.status?.conditions,
        verdict.golden === undefined ? [ready] : [ready, verdict.golden],
        generation,
        new Date(),
      ),
    };
    if (!differs(status, template.status)) return;
    try {
      const applied = { metadata: { name, namespace: namespace ?? "", uid }, status };
      known.remember(await client.apply(templates, applied, { subresource: "status", force: true }));
    } catch (error) {
      if (isNotFound(error) || isConflict(error)) return;
      throw error;
    }
    metrics.statusWrite("Template");
    if (verdict.phase !== "Failed" || template.status?.phase === "Failed") return;
    events.record(template, { type: "Warning", reason: "TemplateInvalid", message: verdict.message });
  }

  /** A new revision is a good moment to let go of those that nobody needs any more. */
  async #prune(template: Template, revision: string): Promise<void> {
    const { actors: known, atelets, revisions, snapshots } = this.#options;
    const { namespace = "", name } = template.metadata;
    const needed = new Set([revision]);
    for (const actor of known.list()) {
      if (actor.metadata.namespace !== namespace || actor.spec.templateRef.name !== name) continue;
      const { assignment, revision: own } = actor.status ?? {};
      if (own !== undefined) needed.add(own);
      if (assignment?.nodeName === undefined) continue;
      const report = atelets.report(assignment.nodeName, actor.metadata.uid ?? "");
      // what a node has that says nothing is not known: the next revision is as good a moment
      if (report === undefined && !atelets.view(assignment.nodeName).synced) return;
      for (const made of [report, ...(report?.generations ?? [])]) if (made !== undefined) needed.add(made.revision);
    }
    for (const snapshot of snapshots.list()) {
      if (snapshot.metadata.namespace !== namespace) continue;
      const { spec, status } = snapshot;
      // of generations and tags, whose actor may be gone, and of golden snapshots; names are the Template's own
      if (status?.revision !== undefined) needed.add(status.revision);
      if (spec.templateRef?.name === name) needed.add(spec.templateRef.revision);
    }
    await revisions.prune(namespace, name, needed);
  }
}
