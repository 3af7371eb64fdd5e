import { manifestFiles } from "./chart-files.ts";
import { rbacPage } from "./rbac-page.ts";
import { valuesPage } from "./values-page.ts";

/** Every file that is made from charts/src, the chart's values and crds/yaml, with its path below the root. */
export function generatedFiles(): { path: string; text: string }[] {
  return [
    ...manifestFiles(),
    { path: "charts/substrate/README.md", text: valuesPage() },
    { path: "docs/reference/rbac.md", text: rbacPage() },
  ];
}
