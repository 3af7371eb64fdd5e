// with Flux's controllers, which the setup of `npm run test:full` always gets
import "./gitops.test.ts";
