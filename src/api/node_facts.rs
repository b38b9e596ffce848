//! The properties of the node that admission uses (A2): the machine's resources, minus reservations.

use crate::api::quantity::Quantity;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};
use crate::api::taints::NoExecute;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeFacts {
    /// The node name, which `spec.nodeName` and the field selector `metadata.name` match.
    pub name: String,
    /// The well-known labels and the configured labels.
    pub labels: BTreeMap<String, String>,
    /// Total resources. cpu in millicores, memory and storage in bytes, others in units; `pods` is `maxPods`.
    pub capacity: Resources,
    /// The amounts that pods may request: capacity minus system reservation, Kubernetes reservation and hard eviction
    /// thresholds.
    pub allocatable: Resources,
    /// `allowedUnsafeSysctls`: names, or prefixes with a trailing `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// True if the kernel enforces AppArmor profiles.
    pub apparmor: bool,
    /// Taints of the node's object on the API server.
    pub taints: Vec<NoExecute>,
}

/// The resources of the machine as the kernel reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// Number of CPUs that are online.
    pub cpus: u64,
    /// In bytes.
    pub memory: u64,
    /// The size of the file system of the root directory, in bytes.
    pub storage: u64,
    /// Pairs of page size in bytes and number of pages.
    pub huge_pages: Vec<(u64, u64)>,
    /// Rust's name for the architecture: `x86_64`, `aarch64`.
    pub architecture: String,
    /// True if the kernel enforces AppArmor profiles.
    pub apparmor: bool,
}

/// The limit of an eviction threshold: the amount that must stay free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Threshold {
    /// In the unit of the signal: bytes, inodes or process ids.
    Amount(u64),
    /// A share of the capacity, in thousandths of a percent.
    Share(u64),
}

impl Threshold {
    /// Parses `100Mi` or `10%`. None means no threshold (`0%`, `100%`).
    ///
    /// # Errors
    /// The kubelet's message for an invalid quantity, an amount that is not positive, or an invalid percentage.
    pub fn parse(text: &str) -> Result<Option<Threshold>, String> {
        if let Some(percent) = text.strip_suffix('%') {
            let number = percent.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b'-');
            let share = Quantity::parse(percent).ok().filter(|_| number);
            let share = share.ok_or_else(|| format!("{text:?} is not a percentage like \"10%\""))?;
            return match u64::try_from(share.milli_value()) {
                Err(_) => Err(format!("eviction percentage threshold {text} must be >= 0%")),
                Ok(share) if share > WHOLE => Err(format!("eviction percentage threshold {text} must be <= 100%")),
                // As in a kubelet, these two values mean no threshold.
                Ok(0 | WHOLE) => Ok(None),
                Ok(share) => Ok(Some(Threshold::Share(share))),
            };
        }
        let amount = Quantity::parse(text)?;
        match u64::try_from(amount.value()) {
            Ok(bytes) if bytes > 0 => Ok(Some(Threshold::Amount(bytes))),
            _ => Err(format!(
                "eviction threshold {text} must be positive; omit the signal or write \"0%\" for no threshold"
            )),
        }
    }

    /// Returns the amount that must stay free, in the unit of `capacity`.
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Threshold::Amount(bytes) => bytes,
            Threshold::Share(share) => {
                let bytes = u128::from(capacity) * u128::from(share) / u128::from(WHOLE);
                u64::try_from(bytes).unwrap_or(capacity)
            }
        }
    }
}

/// 100 %, in thousandths of a percent.
const WHOLE: u64 = 100_000;

/// The configured size and labels of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizing {
    pub name: String,
    pub max_pods: u64,
    /// None: only `max_pods` limits the number of pods.
    pub pods_per_core: Option<u64>,
    pub system_reserved: Resources,
    pub kube_reserved: Resources,
    pub memory_available: Option<Threshold>,
    pub nodefs_available: Option<Threshold>,
    pub extended: BTreeMap<String, u64>,
    pub labels: BTreeMap<String, String>,
    pub allowed_unsafe_sysctls: Vec<String>,
}

/// Returns the standard labels of every node, with their values.
pub fn well_known_labels(name: &str, architecture: &str) -> [(&'static str, String); 5] {
    let arch = go_architecture(architecture);
    [
        ("beta.kubernetes.io/arch", arch.to_owned()),
        ("beta.kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/arch", arch.to_owned()),
        ("kubernetes.io/hostname", name.to_owned()),
        ("kubernetes.io/os", "linux".to_owned()),
    ]
}

/// Returns Go's name for the architecture, as used in images and node selectors.
pub fn go_architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        "mips64" => "mips64le",
        "mips" => "mipsle",
        same => same,
    }
}

/// Returns the resource name for huge pages of this size in bytes, for example `hugepages-2Mi`.
pub fn huge_pages(size: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut number = size;
    let mut unit = 0;
    while number != 0 && number.is_multiple_of(1024) && unit + 1 < units.len() {
        number /= 1024;
        unit += 1;
    }
    format!("hugepages-{number}{}", units[unit])
}

/// Computes the properties of the node (A2).
///
/// # Errors
/// One pair for each resource whose reservations exceed the capacity: the field with the largest share, and the
/// message.
pub fn facts(machine: &MachineFacts, sizing: &Sizing) -> Result<NodeFacts, Vec<(&'static str, String)>> {
    let mut capacity = Resources::default();
    capacity.set(CPU, machine.cpus.saturating_mul(1000));
    capacity.set(MEMORY, machine.memory);
    capacity.set(EPHEMERAL_STORAGE, machine.storage);
    let mut in_huge_pages = 0u64;
    for (size, count) in &machine.huge_pages {
        let bytes = size.saturating_mul(*count);
        capacity.set(&huge_pages(*size), bytes);
        in_huge_pages = in_huge_pages.saturating_add(bytes);
    }
    let by_cores = sizing.pods_per_core.map(|pods| pods.saturating_mul(machine.cpus));
    capacity.set(PODS, by_cores.unwrap_or(u64::MAX).min(sizing.max_pods));
    sizing.extended.iter().for_each(|(name, amount)| capacity.set(name, *amount));

    let mut evicted = Resources::default();
    for (resource, threshold) in [(MEMORY, sizing.memory_available), (EPHEMERAL_STORAGE, sizing.nodefs_available)] {
        evicted.set(resource, threshold.map_or(0, |threshold| threshold.of(capacity.get(resource))));
    }
    let reserved: [(&'static str, &Resources); 3] = [
        ("systemReserved", &sizing.system_reserved),
        ("kubeReserved", &sizing.kube_reserved),
        ("evictionHard", &evicted),
    ];
    let mut kept = Resources::default();
    reserved.iter().for_each(|(_, amounts)| kept.add(amounts));
    let mut wrong = Vec::new();
    for (resource, amount) in kept.iter().filter(|(resource, amount)| *amount > capacity.get(resource)) {
        // If shares are equal, take the first field.
        let most = reserved.iter().rev().max_by_key(|(_, amounts)| amounts.get(resource));
        let field = most.map_or("systemReserved", |(field, _)| *field);
        wrong.push((field, too_much(resource, amount, capacity.get(resource), &reserved)));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut allocatable = capacity.clone();
    allocatable.subtract(&kept);
    // The memory of huge pages is not available for other purposes.
    allocatable.subtract(&Resources::from([(MEMORY, in_huge_pages)]));

    let mut labels = sizing.labels.clone();
    for (key, value) in well_known_labels(&sizing.name, &machine.architecture) {
        labels.insert(key.to_owned(), value);
    }
    let allowed_unsafe_sysctls = sizing.allowed_unsafe_sysctls.clone();
    let apparmor = machine.apparmor;
    Ok(NodeFacts {
        name: sizing.name.clone(),
        labels,
        capacity,
        allocatable,
        allowed_unsafe_sysctls,
        apparmor,
        taints: Vec::new(),
    })
}

fn too_much(resource: &str, amount: u64, capacity: u64, reserved: &[(&'static str, &Resources)]) -> String {
    let shown = |amount| if resource == CPU { format!("{amount}m") } else { format!("{amount} bytes") };
    let parts = reserved.iter().filter(|(_, amounts)| amounts.get(resource) > 0);
    let parts: Vec<String> =
        parts.map(|(field, amounts)| format!("{field} {}", shown(amounts.get(resource)))).collect();
    format!(
        "resource {resource:?} has a reservation of {} ({}) but capacity of {}; reserve less",
        shown(amount),
        parts.join(", "),
        shown(capacity)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: u64 = 1 << 30;

    fn machine() -> MachineFacts {
        MachineFacts {
            cpus: 4,
            memory: 16 * GI,
            storage: 100 * GI,
            huge_pages: vec![(2 << 20, 512), (GI, 0)],
            architecture: "x86_64".into(),
            apparmor: false,
        }
    }

    fn sizing() -> Sizing {
        Sizing {
            name: "pier-7".into(),
            max_pods: 110,
            pods_per_core: None,
            system_reserved: Resources::default(),
            kube_reserved: Resources::default(),
            memory_available: Some(Threshold::Amount(100 << 20)),
            nodefs_available: Some(Threshold::Share(10_000)),
            extended: BTreeMap::new(),
            labels: BTreeMap::new(),
            allowed_unsafe_sysctls: Vec::new(),
        }
    }

    #[test]
    fn a2_allocatable_is_capacity_minus_reservations() {
        let sizing = Sizing {
            system_reserved: Resources::from([(CPU, 250), (MEMORY, GI)]),
            kube_reserved: Resources::from([(CPU, 250), (EPHEMERAL_STORAGE, GI)]),
            extended: BTreeMap::from([("x.io/gpu".to_owned(), 2)]),
            ..sizing()
        };
        let node = facts(&machine(), &sizing).unwrap();
        let whole = [
            (CPU, 4000),
            (MEMORY, 16 * GI),
            (EPHEMERAL_STORAGE, 100 * GI),
            ("hugepages-2Mi", GI),
            (PODS, 110),
            ("x.io/gpu", 2),
        ];
        assert_eq!(node.capacity, Resources::from(whole));
        let left = [
            (CPU, 3500),
            // Huge pages are also subtracted.
            (MEMORY, 14 * GI - (100 << 20)),
            (EPHEMERAL_STORAGE, 89 * GI),
            ("hugepages-2Mi", GI),
            (PODS, 110),
            ("x.io/gpu", 2),
        ];
        assert_eq!(node.allocatable, Resources::from(left));
    }

    #[test]
    fn a2_pods_per_core_lowers_the_number_of_pods_only() {
        for (per_core, pods) in [(None, 110), (Some(10), 40), (Some(200), 110), (Some(u64::MAX), 110)] {
            let node = facts(&machine(), &Sizing { pods_per_core: per_core, ..sizing() }).unwrap();
            assert_eq!((node.capacity.get(PODS), node.allocatable.get(PODS)), (pods, pods));
        }
    }

    #[test]
    fn a2_labels_of_the_configuration_override_no_well_known_one() {
        let labels = [("kubernetes.io/hostname", "other"), ("zone", "b")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        for (rust, go) in [("x86_64", "amd64"), ("aarch64", "arm64"), ("arm", "arm"), ("riscv64", "riscv64")] {
            let machine = MachineFacts { architecture: rust.into(), ..machine() };
            let node = facts(&machine, &Sizing { labels: BTreeMap::from(labels.clone()), ..sizing() }).unwrap();
            let found: Vec<(&str, &str)> = node.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(
                found,
                [
                    ("beta.kubernetes.io/arch", go),
                    ("beta.kubernetes.io/os", "linux"),
                    ("kubernetes.io/arch", go),
                    ("kubernetes.io/hostname", "pier-7"),
                    ("kubernetes.io/os", "linux"),
                    ("zone", "b"),
                ]
            );
        }
    }

    #[test]
    fn a2_more_reserved_than_there_is_is_an_error_with_both_numbers() {
        let sizing = Sizing {
            system_reserved: Resources::from([(CPU, 4001), (MEMORY, 8 * GI)]),
            kube_reserved: Resources::from([(MEMORY, 9 * GI)]),
            nodefs_available: Some(Threshold::Amount(101 * GI)),
            ..sizing()
        };
        assert_eq!(
            facts(&machine(), &sizing).unwrap_err(),
            [
                (
                    "systemReserved",
                    "resource \"cpu\" has a reservation of 4001m (systemReserved 4001m) but capacity of 4000m; reserve \
                     less"
                        .to_owned()
                ),
                (
                    "evictionHard",
                    "resource \"ephemeral-storage\" has a reservation of 108447924224 bytes (evictionHard 108447924224 \
                     bytes) but capacity of 107374182400 bytes; reserve less"
                        .to_owned()
                ),
                (
                    "kubeReserved",
                    "resource \"memory\" has a reservation of 18358468608 bytes (systemReserved 8589934592 bytes, \
                     kubeReserved 9663676416 bytes, evictionHard 104857600 bytes) but capacity of 17179869184 bytes; \
                     reserve less"
                        .to_owned()
                ),
            ]
        );
        let all = Sizing { system_reserved: Resources::from([(CPU, 4000)]), ..self::sizing() };
        assert_eq!(facts(&machine(), &all).unwrap().allocatable.get(CPU), 0);
    }

    #[test]
    fn a2_thresholds_are_amounts_or_shares() {
        for (text, of_10_gi) in [
            ("100Mi", Some(100 << 20)),
            ("1.5Gi", Some(GI + GI / 2)),
            ("10%", Some(GI)),
            ("12.5%", Some(GI + GI / 4)),
            ("0%", None),
            ("100%", None),
        ] {
            assert_eq!(Threshold::parse(text).unwrap().map(|t| t.of(10 * GI)), of_10_gi, "{text}");
        }
        for (text, message) in [
            ("0", "eviction threshold 0 must be positive"),
            ("-1Mi", "eviction threshold -1Mi must be positive"),
            ("101%", "eviction percentage threshold 101% must be <= 100%"),
            ("-1%", "eviction percentage threshold -1% must be >= 0%"),
            ("1k%", "\"1k%\" is not a percentage like \"10%\""),
            ("%", "\"%\" is not a percentage like \"10%\""),
            ("lots", "quantities must match the regular expression"),
            ("1e30", "1e30 is too large"),
        ] {
            let found = Threshold::parse(text).unwrap_err();
            assert!(found.starts_with(message), "{text}: {found}");
        }
    }

    #[test]
    fn huge_pages_are_named_by_their_size() {
        for (size, name) in [(2 << 20, "2Mi"), (GI, "1Gi"), (64 << 10, "64Ki"), (16 * GI, "16Gi"), (0, "0")] {
            assert_eq!(huge_pages(size), format!("hugepages-{name}"));
        }
    }
}
