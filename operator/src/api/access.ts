import { SubstrateError } from "@substrate/lib/errors.ts";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { subjectAccessReviews } from "@substrate/lib/kube/types.ts";

/** As kube-apiserver authenticated him, from the headers of its front proxy. */
export interface Caller {
  user: string;
  uid?: string;
  groups: string[];
  extra: Record<string, string[]>;
}

/** What somebody wants to do. */
export interface Access {
  namespace: string;
  verb: string;
  group: string;
  resource: string;
  subresource?: string;
  name: string;
}

/** Asks the API server for rights beyond those that it has checked for the request's own path. */
export class AccessReviews {
  readonly #client: Pick<KubeClient, "create">;

  constructor(client: Pick<KubeClient, "create">) {
    this.#client = client;
  }

  /** Throws FORBIDDEN naming the right that is missing, or KubeError when nobody can say. */
  async require({ extra, groups, uid, user }: Caller, access: Access): Promise<void> {
    const { status } = await this.#client.create(subjectAccessReviews, {
      metadata: { name: "" },
      spec: { user, groups, extra, ...(uid === undefined ? {} : { uid }), resourceAttributes: access },
    });
    if (status?.allowed === true) return;
    const { group, name, namespace, resource, subresource, verb } = access;
    const what = `${resource}${subresource === undefined ? "" : `/${subresource}`}.${group} ${namespace}/${name}`;
    const fix = `a Role in namespace ${namespace} with verb ${verb} on ${resource} of API group ${group}`;
    throw new SubstrateError("FORBIDDEN", `User "${user}" may not ${verb} ${what}: that needs ${fix}`);
  }
}
