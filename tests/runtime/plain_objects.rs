//! Objects of applications that are only kept and shown, with kubectl: the whole file of an application, namespaces,
//! network policies.

use crate::support::agent::Agent;
use crate::support::kubectl::Kubectl;
use crate::support::lab::Runtime;
use std::fs;

const IMAGE: &str = "localhost/busybox:1.35";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The file of an application, as its author writes it for a cluster. `namespace`: a namespace of its own.
fn application(namespace: &str) -> String {
    let head = |version: &str, kind: &str, name: &str| {
        format!("---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: '{name}', namespace: {namespace}}}\n")
    };
    let role = "{apiGroup: rbac.authorization.k8s.io, kind: Role, name: 'web:reader'}";
    [
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}, labels: {{team: shop}}}}\n"),
        head("v1", "ServiceAccount", "web") + "imagePullSecrets: [{name: login}]\n",
        head(RBAC, "Role", "web:reader") + "rules: [{apiGroups: [''], resources: [pods], verbs: [get, list]}]\n",
        head(RBAC, "RoleBinding", "web")
            + &format!("subjects: [{{kind: ServiceAccount, name: web, namespace: {namespace}}}]\nroleRef: {role}\n"),
        head(RBAC, "ClusterRole", &format!("{namespace}-nodes"))
            + "rules: [{apiGroups: [''], resources: [nodes], verbs: [get]}]\n",
        head("apps/v1", "Deployment", "web")
            + &format!(
                "spec:\n  replicas: 2\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: \
                 {{app: web}}}}\n    spec:\n      serviceAccountName: web\n      terminationGracePeriodSeconds: 1\n      \
                 containers: [{{name: main, image: '{IMAGE}', command: [sleep, '1000']}}]\n"
            ),
        head("autoscaling/v1", "HorizontalPodAutoscaler", "web")
            + "spec:\n  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}\n  minReplicas: 2\n  \
               maxReplicas: 5\n  targetCPUUtilizationPercentage: 80\n",
        head("policy/v1", "PodDisruptionBudget", "web")
            + "spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}\n",
    ]
    .concat()
}

fn rows(k: &Kubectl, line: &str) -> Vec<String> {
    let printed = k.run(line);
    assert_eq!(printed.code, 0, "{line}: {} {}", printed.out, printed.err);
    printed.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn y30_the_file_of_an_application_is_applied_shown_and_deleted() {
    let mut agent = Agent::serving("apps");
    let k = Kubectl::newest(&agent, "apps");
    let n = format!("{}-app", agent.namespace);
    let file = k.file("app.yaml", &application(&n));
    let applied = k.run(&format!("apply -f {file}"));
    assert_eq!(applied.code, 0, "{} {}", applied.out, applied.err);
    for warning in [
        "so the role has no effect",
        "so the binding has no effect",
        "pods get no tokens of the account; its imagePullSecrets have no effect unless the pods name them too",
        "the number of replicas stays as written; change it with kubectl scale",
    ] {
        assert!(applied.err.contains(warning), "{warning}: {}", applied.err);
    }
    k.ok(&["rollout", "status", "-n", &n, "deploy/web", "--timeout=60s"]);
    let again = k.run(&format!("apply -f {file}"));
    // As in a cluster: kubectl always sends the selector of a budget.
    let changed: Vec<&str> = again.out.lines().filter(|line| line.ends_with(" configured")).collect();
    assert!(again.code == 0 && changed == ["poddisruptionbudget.policy/web configured"], "{} {}", again.out, again.err);

    assert_eq!(rows(&k, &format!("get ns {n} --show-labels"))[0], "NAME STATUS AGE LABELS");
    let labels = k.ok(&["get", "ns", &n, "-o", "jsonpath={.metadata.labels}"]);
    assert_eq!(labels, format!("{{\"kubernetes.io/metadata.name\":\"{n}\",\"team\":\"shop\"}}"));
    for (what, header, row) in [
        ("sa", "NAME SECRETS AGE", "web 0 "),
        ("role", "NAME CREATED AT", "web:reader 20"),
        ("rolebinding", "NAME ROLE AGE", "web Role/web:reader "),
        ("rolebinding -o wide", "NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS", "web Role/web:reader "),
        ("hpa", "NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE", "web Deployment/web cpu: <unknown>/80% 2 5 2 "),
        ("pdb", "NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE", "web 1 N/A "),
    ] {
        let rows = rows(&k, &format!("get {what} -n {n}"));
        assert!(rows[0] == header && rows[1].starts_with(row), "{what}: {rows:?}");
    }
    assert!(rows(&k, "get clusterroles")[1].starts_with(&format!("{n}-nodes 20")));
    for (what, part) in [
        ("describe sa web", "Image pull secrets:  login"),
        ("describe role web:reader", "pods"),
        ("describe rolebinding web", "ServiceAccount  web"),
        ("describe hpa web", "the number of replicas stays as written"),
        ("describe pdb web", "Min available:  1"),
        // kubectl ignores the version beside a short name.
        ("get horizontalpodautoscalers.v1.autoscaling web -o jsonpath={.spec.targetCPUUtilizationPercentage}", "80"),
        ("explain networkpolicy.spec.podSelector", "LabelSelector"),
    ] {
        let printed = k.run(&format!("{what} -n {n}"));
        assert!(printed.code == 0 && printed.out.contains(part), "{what}: {} {}", printed.out, printed.err);
    }
    // Nobody but its creator can see how the name of a role becomes that of a file.
    let files = fs::read_dir(agent.manifests()).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let of_role = format!("kubectl_{n}_role_web-reader_");
    assert!(files.into_iter().any(|name| name.to_string_lossy().starts_with(&of_role)), "{of_role}");

    agent.kill();
    agent.run_with_kubectl();
    agent.wait("the objects are known again", |_| k.run(&format!("get role web:reader -n {n}")).code == 0);
    k.ok(&["patch", "sa", "web", "-n", &n, "-p", "{\"imagePullSecrets\": [{\"name\": \"other\"}]}"]);
    assert_eq!(k.ok(&["get", "sa", "web", "-n", &n, "-o", "jsonpath={.imagePullSecrets[*].name}"]), "other");

    let deleted = k.run(&format!("delete -f {file} --timeout=60s"));
    assert_eq!(deleted.code, 0, "{} {}", deleted.out, deleted.err);
    assert!(deleted.err.contains("only the document of the namespace is deleted"), "{}", deleted.err);
    agent.wait("the namespace is gone", |_| k.run(&format!("get ns {n}")).code == 1);
}

#[test]
fn y30_kubectl_creates_these_objects_itself() {
    let agent = Agent::serving("appsmade");
    let k = Kubectl::newest(&agent, "appsmade");
    let n = format!("{}-made", agent.namespace);
    k.ok(&["create", "namespace", &n]);
    assert!(k.fails(&["create", "namespace", &n]).contains("already exists"));
    for line in [
        "create serviceaccount web",
        "create role reader --verb=get,list --resource=pods",
        "create rolebinding reader --role=reader --user=ann --group=ops --serviceaccount=NS:web",
        "create clusterrole NS-reader --verb=get --resource=nodes",
        "create clusterrolebinding NS-reader --clusterrole=NS-reader --user=ann",
        "create deployment web --image=localhost/busybox:1.35 -- sleep 1000",
        "autoscale deployment web --min=1 --max=3 --cpu-percent=70",
        "create poddisruptionbudget web --selector=app=web --min-available=1",
        "label ns NS team=shop",
        "annotate sa web note=here",
    ] {
        let line = format!("-n {n} {}", line.replace("NS", &n));
        let printed = k.run(&line);
        assert_eq!(printed.code, 0, "{line}: {} {}", printed.out, printed.err);
    }
    let printed = k.run(&format!("get rolebinding reader -o wide --no-headers -n {n}")).out;
    assert!(
        printed.contains("Role/reader") && printed.contains(&format!("ann ops {n}/web").replace(' ', "   ")),
        "{printed}"
    );
    let hpa = k.ok(&["get", "hpa", "web", "-n", &n, "--no-headers"]);
    assert!(hpa.contains("cpu: <unknown>/70%"), "{hpa}");
    let dry = k.run(&format!("create sa other --dry-run=server -n {n}"));
    assert!(dry.code == 0 && k.run(&format!("get sa other -n {n}")).code == 1, "{} {}", dry.out, dry.err);

    // The objects stay, and the command does not wait for them.
    let deleted = k.run(&format!("delete ns {n} --timeout=30s"));
    assert!(deleted.code == 0 && deleted.err.contains("the objects in the namespace stay"), "{}", deleted.err);
    assert_eq!(k.ok(&["get", "sa", "-n", &n, "-o", "name"]), "serviceaccount/web\n");
    assert!(k.fails(&["delete", "ns", &n]).contains("it has no manifest"));
    for line in [
        "delete deploy/web sa/web role/reader rolebinding/reader hpa/web pdb/web -n NS",
        "delete clusterrole/NS-reader clusterrolebinding/NS-reader",
    ] {
        let deleted = k.run(&format!("{} --timeout=60s", line.replace("NS", &n)));
        assert_eq!(deleted.code, 0, "{line}: {} {}", deleted.out, deleted.err);
    }
    agent.wait("the namespace is gone", |_| k.run(&format!("get ns {n}")).code == 1);
}

#[test]
fn y31_a_network_policy_needs_the_permission_of_the_configuration() {
    let mut agent = Agent::prepare("policies", &Runtime::shared());
    agent.serve_kubectl();
    agent.run_with_kubectl();
    let k = Kubectl::newest(&agent, "policies");
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: \
                  {matchLabels: {app: web}}}\n";
    let file = k.file("policy.yaml", policy);
    let refused = k.fails(&["apply", "-f", &file]);
    assert!(refused.contains("its pods would accept every connection"), "{refused}");
    assert!(refused.contains("set networkPolicies: Ignore in the WherryConfiguration"), "{refused}");
    let checked = agent.wherry(&["check", &file]);
    assert_eq!(checked.status.code(), Some(1));
    let printed = String::from_utf8(checked.stdout).expect("UTF-8");
    assert!(printed.contains("policy.yaml:2: kind: nothing on one machine enforces a NetworkPolicy"), "{printed}");

    let text = "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nnetworkPolicies: Ignore\n";
    fs::write(agent.dir.join("config.d/40-policies.yaml"), text).expect("a drop-in");
    assert_eq!(agent.terminate(), Some(0));
    agent.run_with_kubectl();
    let accepted = k.run(&format!("apply -f {file}"));
    assert!(accepted.code == 0 && accepted.err.contains("pods accept every connection"), "{}", accepted.err);
    assert_eq!(rows(&k, "get netpol")[0], "NAME POD-SELECTOR AGE");
    assert!(rows(&k, "get netpol")[1].starts_with("deny app=web "));
    assert!(k.ok(&["describe", "netpol", "deny"]).contains("PodSelector:     app=web"));
    k.ok(&["delete", "-f", &file]);
}

#[test]
fn y30_a_check_prints_a_warning_for_each_object_without_effect() {
    let agent = Agent::serving("appscheck");
    let path = agent.dir.join("app.yaml");
    fs::write(&path, application("shop")).expect("a file");
    let checked = agent.wherry(&["check", path.to_str().expect("UTF-8")]);
    let printed = String::from_utf8(checked.stdout).expect("UTF-8");
    assert_eq!(checked.status.code(), Some(0), "{printed}");
    assert_eq!(printed.lines().filter(|line| line.starts_with("warning: ")).count(), 5, "{printed}");
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\n";
    fs::write(&path, ingress).expect("a file");
    let printed = String::from_utf8(agent.wherry(&["check", path.to_str().expect("UTF-8")]).stdout).expect("UTF-8");
    assert!(printed.contains("kind: Ingress is not supported: ") && printed.contains("type NodePort"), "{printed}");
}

#[test]
fn a_directory_of_kustomize_is_applied_pruned_and_deleted() {
    let agent = Agent::serving("kustomization");
    let k = Kubectl::newest(&agent, "kustomization");
    let directory = agent.dir.join("staging");
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).expect("a file");
    fs::create_dir(&directory).expect("a directory");
    write(
        "kustomization.yaml",
        "namePrefix: staging-\nlabels: [{pairs: {part-of: shop}}]\nresources: [app.yaml]\nconfigMapGenerator: \
         [{name: settings, literals: [colour=blue]}]\n",
    );
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n";
    let budget =
        "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 1}\n";
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\ndata: {password: aGlkZGVu}\n";
    write("app.yaml", &[account, budget, secret].concat());
    let path = directory.to_str().expect("UTF-8");
    k.ok(&["apply", "-k", path]);
    let names = || k.ok(&["get", "sa,pdb,cm,secret", "-l", "part-of=shop", "-o", "name"]);
    let settings = k.ok(&["get", "cm", "-l", "part-of=shop", "-o", "name"]);
    let all =
        format!("serviceaccount/staging-web\npoddisruptionbudget.policy/staging-web\n{settings}secret/staging-login\n");
    assert_eq!(names(), all);
    let applied = k.ok(&["apply", "-k", path]);
    assert_eq!(applied.matches(" unchanged\n").count(), 4, "{applied}");

    // Of the kinds that kubectl prunes by default, only the Secret is missing in the new version.
    write("app.yaml", &[account, budget].concat());
    let pruned = k.ok(&["apply", "-k", path, "--prune", "-l", "part-of=shop"]);
    assert_eq!(pruned.matches(" pruned\n").count(), 1, "{pruned}");
    assert_eq!(names(), all.replace("secret/staging-login\n", ""));
    k.ok(&["delete", "-k", path]);
    assert_eq!(names(), "");

    // An object that is refused does not hinder the others.
    let ingress = "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nspec: {}\n";
    let file = k.file("ingress.yaml", &[ingress, "---\n", account].concat());
    let refused = k.fails(&["apply", "-f", &file]);
    assert!(refused.contains("Ingress is not supported: ") && refused.contains("type NodePort"), "{refused}");
    assert_eq!(k.ok(&["get", "sa", "-o", "name"]), "serviceaccount/web\n");
    assert!(k.fails(&["create", "-f", &file]).contains("type NodePort"));
    let refused = k.fails(&["apply", "--server-side", "-f", &file]);
    assert!(refused.contains("type NodePort"), "{refused}");
    k.ok(&["delete", "--ignore-not-found", "-f", &file]);
    assert_eq!(k.ok(&["get", "sa", "-o", "name"]), "");
}
