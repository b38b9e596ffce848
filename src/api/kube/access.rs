//! The permissions of each role. A client's certificate names its role.

use super::resources::{Kind, Resource};
use super::status::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May do everything.
    Edit,
    /// May read everything except Secrets, but may neither run a command in a container nor connect to one.
    View,
}

impl Role {
    /// Returns the role's organization (O) in the certificate's subject.
    pub fn group(self) -> &'static str {
        match self {
            Role::Edit => "wherry:edit",
            Role::View => "wherry:view",
        }
    }

    /// Returns the role of a certificate with these organizations. If several roles match, the one with the most
    /// rights applies.
    pub fn of<'a>(organizations: impl Iterator<Item = &'a str> + Clone) -> Option<Role> {
        [Role::Edit, Role::View].into_iter().find(|role| organizations.clone().any(|o| o == role.group()))
    }

    /// Reports whether the role may use the verb on the resource or subresource. Like a control plane's authorizer,
    /// it does not consider whether the server implements the verb.
    pub fn may(self, verb: &str, kind: Option<Kind>, subresource: Option<&str>) -> bool {
        if self == Role::Edit {
            return true;
        }
        let review = matches!(
            kind,
            Some(Kind::SelfSubjectAccessReview | Kind::SelfSubjectRulesReview | Kind::SelfSubjectReview)
        );
        match subresource {
            _ if review => verb == "create",
            // The verb `get` starts a session too.
            Some("exec" | "attach" | "portforward" | "proxy") => false,
            _ => matches!(verb, "get" | "list" | "watch") && kind != Some(Kind::Secret),
        }
    }
}

/// # Errors
/// The role does not permit the verb.
pub fn check(
    role: Role,
    user: &str,
    verb: &str,
    resource: &Resource,
    subresource: Option<&str>,
    name: &str,
) -> Result<(), Failure> {
    if role.may(verb, Some(resource.kind), subresource) {
        return Ok(());
    }
    let object = match subresource {
        Some(sub) => format!("{}/{sub}", resource.plural),
        None => resource.plural.to_owned(),
    };
    let why = format!(
        "User {user:?} cannot {verb} resource {object:?} in API group {:?}: the certificate has the role view",
        resource.group
    );
    Err(Failure::forbidden(resource, name, why))
}

/// Returns the DNS names under which clients reach the server of the node with this name.
pub fn dns_names(node: &str) -> [&str; 2] {
    [node, "localhost"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_changes_nothing_enters_no_container_and_reads_no_secret() {
        let may = |verb, kind, sub| Role::View.may(verb, Some(kind), sub);
        for verb in ["get", "list", "watch"] {
            assert!(
                may(verb, Kind::Pod, None) && may(verb, Kind::ConfigMap, None) && may(verb, Kind::Pod, Some("log"))
            );
            assert!(!may(verb, Kind::Secret, None), "{verb}");
            for sub in ["exec", "attach", "portforward"] {
                assert!(!may(verb, Kind::Pod, Some(sub)), "{verb} {sub}");
                assert!(Role::Edit.may(verb, Some(Kind::Pod), Some(sub)));
            }
        }
        for verb in ["create", "update", "patch", "delete", "deletecollection"] {
            assert!(!may(verb, Kind::Pod, None) && !may(verb, Kind::Secret, None), "{verb}");
            assert!(Role::Edit.may(verb, Some(Kind::Secret), None));
        }
        // The pages for collectors (`kubelet`).
        for sub in ["metrics", "stats", "pods", "configz", "healthz"] {
            assert!(may("get", Kind::Node, Some(sub)) && !may("create", Kind::Node, Some(sub)), "{sub}");
        }
        assert!(!may("get", Kind::Node, Some("proxy")));
        assert!(may("create", Kind::SelfSubjectAccessReview, None));
        let refused = check(Role::View, "ann", "get", Resource::of(Kind::Secret), None, "key").unwrap_err();
        assert_eq!(refused.code, 403);
        assert!(
            refused.message.starts_with("secrets \"key\" is forbidden: User \"ann\" cannot get resource \"secrets\"")
        );
    }

    #[test]
    fn the_certificate_names_the_role() {
        let of = |organizations: &[&'static str]| Role::of(organizations.iter().copied());
        assert_eq!(of(&["wherry:view"]), Some(Role::View));
        assert_eq!(of(&["wherry:view", "wherry:edit"]), Some(Role::Edit));
        assert_eq!((of(&["system:masters"]), of(&[])), (None, None));
    }
}
