//! Who depends on whom, and in which order things can go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spate_engine::plan::ObjectId;
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::object::{Object, ObjectKind};

/// Most dependents that an error lists.
const LISTED: usize = 10;

/// Objects that read `id` directly, by rising id.
pub fn dependents(objects: &BTreeMap<ObjectId, Arc<Object>>, id: ObjectId) -> Vec<ObjectId> {
    objects.values().filter(|o| o.depends_on.contains(&id)).map(|o| o.id).collect()
}

/// `ids` and everything that depends on them, directly or not, dependents first.
///
/// An object can only read what existed before it, so falling ids are such an order.
pub fn cascade(objects: &BTreeMap<ObjectId, Arc<Object>>, ids: &[ObjectId]) -> Vec<ObjectId> {
    let mut all: BTreeSet<ObjectId> = ids.iter().copied().collect();
    // Rising ids: whatever an object reads has been decided before it.
    for object in objects.values() {
        if object.depends_on.iter().any(|d| all.contains(d)) {
            all.insert(object.id);
        }
    }
    all.into_iter().rev().filter(|id| objects.contains_key(id)).collect()
}

/// What goes when `ids` go, dependents first. Without `cascade`, fails with
/// `DependencyExists` if that is more than `ids`.
pub fn drop_order(
    objects: &BTreeMap<ObjectId, Arc<Object>>,
    ids: &[ObjectId],
    with_dependents: bool,
    what: &str,
) -> Result<Vec<ObjectId>> {
    let order = cascade(objects, ids);
    let others: Vec<&Arc<Object>> =
        order.iter().rev().filter(|id| !ids.contains(id)).filter_map(|id| objects.get(id)).collect();
    // An index goes with what it is of.
    let others: Vec<&Arc<Object>> = others.into_iter().filter(|o| o.kind != ObjectKind::Index).collect();
    if with_dependents || others.is_empty() {
        return Ok(order);
    }
    let mut names: Vec<String> =
        others.iter().take(LISTED).map(|o| format!("{} {}", o.kind, o.display_name())).collect();
    if others.len() > LISTED {
        names.push(format!("{} more", others.len() - LISTED));
    }
    let verb = if others.len() == 1 { "depends" } else { "depend" };
    Err(SpateError::new(
        ErrorKind::DependencyExists,
        format!("cannot drop {what} because other objects depend on it: {} {verb} on it", names.join(", ")),
    )
    .with_hint("use DROP … CASCADE to drop the dependent objects too"))
}
