//! Lists that a strategic merge patch merges by the key of their items.
//!
//! Some lists can have several items with the same key, such as a port with TCP and with UDP. A second field tells
//! them apart. A patch of kubectl contains only the key of each item that it changes, and in `$setElementOrder` the
//! keys of all items that the list has afterwards. A key that occurs twice there therefore means that the list gets a
//! second item. (An API server ignores this, and loses one of the two.)

use crate::api::ordered::OrderSlice;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The maximum number of items with the same key.
const MAX_OF_ONE_KEY: usize = 64;

/// The field that tells items with the same key apart, and its default.
type Second = Option<(&'static str, &'static str)>;

/// What the list `ports` of an object contains, which depends on its kind.
#[derive(Clone, Copy)]
pub(super) enum Ports {
    Containers,
    Service,
    /// The list is replaced as a whole.
    Endpoints,
}

impl Ports {
    pub(super) fn of(object: &Map<String, Value>) -> Ports {
        match object.get("kind").and_then(Value::as_str) {
            Some("Service") => Ports::Service,
            Some("EndpointSlice") => Ports::Endpoints,
            _ => Ports::Containers,
        }
    }

    fn key(self) -> Option<&'static str> {
        match self {
            Ports::Containers => Some("containerPort"),
            Ports::Service => Some("port"),
            Ports::Endpoints => None,
        }
    }
}

/// A list, and how it is merged.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    list: &'a str,
    key: &'static str,
    second: Second,
}

impl<'a> Keys<'a> {
    /// Returns how the list is merged. None if it is replaced as a whole.
    pub(super) fn of(list: &'a str, ports: Ports) -> Option<Keys<'a>> {
        let (key, second) = match list {
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "env"
            | "imagePullSecrets"
            | "secrets"
            | "schedulingGates"
            | "resourceClaims" => ("name", None),
            "ports" => (ports.key()?, Some(("protocol", "TCP"))),
            "volumeMounts" => ("mountPath", None),
            "volumeDevices" => ("devicePath", None),
            "hostAliases" | "podIPs" | "hostIPs" => ("ip", None),
            "topologySpreadConstraints" => ("topologyKey", Some(("whenUnsatisfiable", ""))),
            "conditions" => ("type", None),
            "ownerReferences" => ("uid", None),
            _ => return None,
        };
        Some(Keys { list, key, second })
    }

    /// Returns the key of an item, as text that can be compared.
    fn id(self, item: &Value) -> Option<String> {
        item.get(self.key).map(Value::to_string)
    }

    fn id_of_patch(self, item: &Map<String, Value>) -> Result<String, String> {
        let id = item.get(self.key).map(Value::to_string);
        id.ok_or_else(|| format!("an item of {} has no {}", self.list, self.key))
    }
}

/// Merges the items of a patch into the list. `merge` merges one item.
///
/// # Errors
/// An item of the patch has no key, or too many items have the same key.
pub(super) fn merge(
    keys: Keys<'_>,
    mut items: Vec<Value>,
    patch: Vec<Value>,
    order: Option<&[Value]>,
    merge: &mut dyn FnMut(Map<String, Value>, Map<String, Value>) -> Result<Value, String>,
) -> Result<Vec<Value>, String> {
    let directive = |item: &Map<String, Value>, name: &str| item.get("$patch").is_some_and(|d| d == name);
    let (mut changes, mut deletions) = (Vec::new(), Vec::new());
    for item in patch {
        let Value::Object(item) = item else { return Err(format!("an item of {} is not an object", keys.list)) };
        if directive(&item, "replace") {
            items.clear();
            if item.len() == 1 {
                continue;
            }
        }
        let id = keys.id_of_patch(&item)?;
        if directive(&item, "delete") { deletions.push(id) } else { changes.push((id, item)) }
    }
    let mut list = Merged::new(keys, items, order)?;
    // An item that the patch both deletes and contains starts empty. If some items with the key stay, the changes
    // tell which.
    deletions.retain(|id| list.wanted(id) > 0 && keys.second.is_some() || !list.delete_all(id));
    for (id, item) in changes {
        let at = list.target(&id, &item);
        let before = at.map(|at| std::mem::take(&mut list.items[at]));
        let before = if let Some(Some(Value::Object(before))) = before { before } else { Map::new() };
        let merged = merge(before, item)?;
        list.put(id, at, merged)?;
    }
    for id in &deletions {
        list.delete_surplus(id)?;
    }
    Ok(list.items.into_iter().flatten().collect())
}

struct Merged<'a> {
    keys: Keys<'a>,
    /// None: removed.
    items: Vec<Option<Value>>,
    /// The positions of the items with each key.
    places: BTreeMap<String, Vec<usize>>,
    /// The number of items with each key after the patch, if the patch says it.
    wanted: BTreeMap<String, usize>,
    changed: Vec<bool>,
}

impl<'a> Merged<'a> {
    fn new(keys: Keys<'a>, items: Vec<Value>, order: Option<&[Value]>) -> Result<Merged<'a>, String> {
        let mut wanted = BTreeMap::new();
        for id in order.into_iter().flatten().filter_map(|item| keys.id(item)) {
            *wanted.entry(id).or_default() += 1;
        }
        let mut list = Merged { keys, items: Vec::new(), places: BTreeMap::new(), wanted, changed: Vec::new() };
        for item in items {
            match keys.id(&item) {
                Some(id) => list.add(id, item, false)?,
                None => {
                    list.items.push(Some(item));
                    list.changed.push(false);
                }
            }
        }
        Ok(list)
    }

    fn wanted(&self, id: &str) -> usize {
        self.wanted.get(id).copied().unwrap_or(0)
    }

    fn add(&mut self, id: String, item: Value, changed: bool) -> Result<(), String> {
        let places = self.places.entry(id).or_default();
        if places.len() == MAX_OF_ONE_KEY {
            let Keys { list, key, .. } = self.keys;
            return Err(format!("more than {MAX_OF_ONE_KEY} items of {list} have the same {key}"));
        }
        places.push(self.items.len());
        self.items.push(Some(item));
        self.changed.push(changed);
        Ok(())
    }

    fn put(&mut self, id: String, at: Option<usize>, item: Value) -> Result<(), String> {
        match at {
            Some(at) => {
                (self.items[at], self.changed[at]) = (Some(item), true);
                Ok(())
            }
            None => self.add(id, item, true),
        }
    }

    /// Returns the position of the item that an item of the patch changes. None if the patch adds an item.
    fn target(&self, id: &str, item: &Map<String, Value>) -> Option<usize> {
        let places = self.places.get(id)?;
        let Some((field, default)) = self.keys.second else { return places.first().copied() };
        let of = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or(default).to_owned();
        let second = of(item.get(field));
        let is_same = |at: &&usize| self.items[**at].as_ref().is_some_and(|existing| of(existing.get(field)) == second);
        if let Some(same) = places.iter().find(is_same) {
            return Some(*same);
        }
        if places.len() < self.wanted(id) {
            return None;
        }
        places.iter().rfind(|at| !self.changed[**at]).or(places.last()).copied()
    }

    /// Deletes all items with the key. Always returns true.
    fn delete_all(&mut self, id: &str) -> bool {
        for at in self.places.remove(id).unwrap_or_default() {
            self.items[at] = None;
        }
        true
    }

    /// Deletes the items with the key that the patch does not change, if there are more than the patch wants. It is
    /// an error if only some of them have to go, because the patch does not say which.
    fn delete_surplus(&mut self, id: &str) -> Result<(), String> {
        let (wanted, Keys { list, key, .. }) = (self.wanted(id), self.keys);
        let Some(places) = self.places.get_mut(id) else { return Ok(()) };
        let unchanged = places.iter().filter(|at| !self.changed[**at]).count();
        let surplus = places.len().saturating_sub(wanted);
        if surplus > 0 && surplus < unchanged {
            return Err(format!(
                "the patch removes {surplus} of {unchanged} items of {list} with {key} {id} and does not say which; \
                 use kubectl replace"
            ));
        }
        if surplus > 0 {
            for at in places.extract_if(.., |at| !self.changed[*at]) {
                self.items[at] = None;
            }
        }
        Ok(())
    }
}

/// Sorts the items that `order` lists into its order. All other items keep their positions.
pub(super) fn reorder(items: &mut [Value], order: &[Value], keys: Option<Keys<'_>>) {
    let id = |item: &Value| keys.map_or_else(|| Some(item.to_string()), |keys| keys.id(item));
    let mut places = BTreeMap::new();
    for (place, item) in order.iter().enumerate() {
        if let Some(id) = id(item) {
            places.entry(id).or_insert(place);
        }
    }
    let mut listed: Vec<(usize, usize)> =
        items.iter().enumerate().filter_map(|(at, item)| Some((*places.get(&id(item)?)?, at))).collect();
    let mut free: Vec<usize> = listed.iter().map(|(_, at)| *at).collect();
    free.order();
    listed.order();
    let taken: Vec<Value> = listed.into_iter().map(|(_, at)| items[at].take()).collect();
    for (at, item) in free.into_iter().zip(taken) {
        items[at] = item;
    }
}

#[cfg(test)]
mod tests {
    use super::super::strategic;
    use serde_json::{Value, json};

    /// Returns the ports after a patch of kubectl.
    fn ports(before: Value, patch: Value, order: &[u16]) -> Value {
        let order: Vec<Value> = order.iter().map(|port| json!({ "containerPort": port })).collect();
        let patch = json!({ "$setElementOrder/ports": order, "ports": patch });
        strategic::merge(json!({ "ports": before }), patch).unwrap()["ports"].clone()
    }

    #[test]
    fn a_port_can_have_two_protocols() {
        let port = |protocol: &str| json!({ "containerPort": 1000, "protocol": protocol });
        let plain = json!({ "containerPort": 1000, "name": "x" });
        let (tcp, udp, sctp) = (port("TCP"), port("UDP"), port("SCTP"));
        assert_eq!(ports(json!([tcp]), json!([udp]), &[1000, 1000]), json!([tcp, udp]), "a second one");
        assert_eq!(ports(json!([plain]), json!([udp]), &[1000, 1000]), json!([plain, udp]), "TCP is the default");
        assert_eq!(ports(json!([udp]), json!([plain]), &[1000, 1000]), json!([udp, plain]));
        assert_eq!(ports(json!([tcp]), json!([udp]), &[1000]), json!([udp]), "another protocol");
        assert_eq!(ports(json!([tcp, udp]), json!([sctp]), &[1000, 1000]), json!([tcp, sctp]));
        let delete = json!({ "$patch": "delete", "containerPort": 1000 });
        let order = json!([{ "containerPort": 1000 }]);
        let ambiguous = json!({ "$setElementOrder/ports": order, "ports": [delete] });
        let why = strategic::merge(json!({ "ports": [tcp, udp] }), ambiguous).unwrap_err();
        assert!(why.contains("removes 1 of 2 items of ports with containerPort 1000 and does not say which"), "{why}");
        assert_eq!(ports(json!([tcp, udp]), json!([udp, delete]), &[1000]), json!([udp]), "the first one goes");
        assert_eq!(ports(json!([tcp, udp]), json!([delete]), &[]), json!([]));
        let named = json!({ "containerPort": 1000, "protocol": "UDP", "name": "dns" });
        assert_eq!(ports(json!([tcp, udp]), json!([named]), &[1000, 1000]), json!([tcp, named]));
        // Without the order, an item changes the existing one.
        let patched = strategic::merge(json!({ "ports": [tcp] }), json!({ "ports": [udp] })).unwrap();
        assert_eq!(patched["ports"], json!([udp]));
    }

    #[test]
    fn an_item_that_a_patch_deletes_and_contains_starts_empty() {
        let env = json!([{ "name": "a", "value": "1" }, { "name": "b", "value": "2" }, { "no": "key" }]);
        let patch = json!({ "env": [{ "name": "a", "$patch": "delete" }, { "name": "a", "valueFrom": {} }] });
        let merged = strategic::merge(json!({ "env": env }), patch).unwrap();
        assert_eq!(
            merged["env"],
            json!([{ "name": "b", "value": "2" }, { "no": "key" }, { "name": "a", "valueFrom": {} }])
        );
    }

    #[test]
    fn long_lists_are_merged_fast() {
        // Comparing each item with every other would take three times 400 million comparisons.
        let names = |range: std::ops::Range<u32>| range.map(|n| json!({ "name": format!("n{n}") })).collect::<Vec<_>>();
        let order: Vec<Value> = names(0..20_000).into_iter().rev().collect();
        let texts = |all: &[Value]| all.iter().map(|item| item["name"].clone()).collect::<Vec<_>>();
        let patch = json!({
            "env": names(10_000..20_000), "$setElementOrder/env": order,
            "finalizers": texts(&names(0..20_000)), "$retainKeys": texts(&names(0..20_000)).into_iter()
                .chain(["env", "finalizers"].map(Value::from)).collect::<Vec<_>>(),
        });
        let merged = strategic::merge(json!({ "env": names(0..10_000), "other": 1 }), patch).unwrap();
        assert_eq!(merged["env"], json!(order));
        assert_eq!((merged["finalizers"].as_array().unwrap().len(), merged.get("other")), (20_000, None));
        let patch = json!({ "$deleteFromPrimitiveList/finalizers": texts(&names(1..20_000)) });
        assert_eq!(strategic::merge(merged, patch).unwrap()["finalizers"], json!(["n0"]));
    }

    #[test]
    fn the_items_of_one_key_have_a_limit() {
        let same = |n: usize| json!({ "ports": vec![json!({ "containerPort": 1 }); n] });
        let patch = json!({ "ports": [{ "containerPort": 1, "name": "a" }] });
        assert!(strategic::merge(same(64), patch.clone()).is_ok());
        let why = strategic::merge(same(65), patch).unwrap_err();
        assert!(why.contains("more than 64 items of ports have the same containerPort"), "{why}");
    }
}
