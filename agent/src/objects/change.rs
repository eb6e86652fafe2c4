//! Changes to the objects in force: worked out first, then made one after the other, and taken back if one is refused.

use sluice_flow::backend::{Checker, Facet};
use sluice_flow::{Backend, Refusal};

use super::{Held, Object, ObjectError, ObjectId, Objects, Origin};

/// A change to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The object goes.
    Remove(ObjectId),
    /// The object comes, or changes in place.
    Put(Object, Origin),
    /// The object is there as it is wanted, and is the configuration file's from now on.
    Claim(ObjectId),
}

impl Step {
    /// What it changes.
    pub fn object(&self) -> ObjectId {
        match self {
            Self::Remove(id) | Self::Claim(id) => id.clone(),
            Self::Put(object, _) => object.id(),
        }
    }
}

/// What becomes of a port whose device is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The port is refused.
    Refused,
    /// The port is made, and usable once the device is there.
    Tolerated,
}

/// What must change for the file's objects to be in force. What came at run time stays; where it differs from the file in what
/// can be changed in place, the file wins. A port of the file that clashes with one of the run time is an error.
pub fn difference(in_force: &Objects, file: &[Object]) -> Result<Vec<Step>, ObjectError> {
    let is_wanted = |id: &ObjectId| file.iter().any(|object| object.id() == *id);
    // Objects go before those that they may refer to.
    let gone = in_force.iter().rev().filter(|held| held.origin == Origin::File && !is_wanted(&held.object.id()));
    let mut steps: Vec<_> = gone.map(|held| Step::Remove(held.object.id())).collect();
    let (mut replaced, mut put) = (Vec::new(), Vec::new());
    for object in file {
        let id = object.id();
        match (in_force.get(&id), object) {
            (Some(Held { object: known, origin }), _) if known == object => {
                put.extend((*origin == Origin::RunTime).then_some(Step::Claim(id)));
            }
            (Some(Held { object: Object::Port(known), origin: Origin::RunTime }), Object::Port(port)) => {
                let reason = format!(
                    "port {}: number {} is {} already, which was added at run time: delete that first",
                    port.name, port.number, known.name
                );
                return Err(ObjectError { object: id, reason });
            }
            (Some(_), Object::Port(_)) => {
                replaced.push(Step::Remove(id));
                put.push(Step::Put(object.clone(), Origin::File));
            }
            (Some(_) | None, _) => put.push(Step::Put(object.clone(), Origin::File)),
        }
    }
    steps.extend(replaced);
    put.sort_by_key(Step::object);
    steps.extend(put);
    let mut after = in_force.clone();
    for step in &steps {
        step.note(&mut after);
    }
    check_fit(in_force, &steps, &after).map(|()| steps)
}

/// Checks the objects of a file as far as that can be done without the device: whether they fit together, and whether a device of this
/// kind could take them.
pub fn check(checker: &mut dyn Checker, file: &[Object]) -> Result<(), ObjectError> {
    for step in difference(&Objects::default(), file)? {
        let Step::Put(object, _) = step else { continue };
        let result = match &object {
            Object::Port(port) => checker.port(port),
            Object::Meter(meter) => checker.meter(meter),
            Object::TimeoutPolicy(policy) => checker.timeout_policy(policy),
            Object::Mirror(mirror) => checker.mirror(mirror),
        };
        result.map_err(|refusal| object.error(&refusal))?;
    }
    Ok(())
}

/// Whether what is in force after some steps fits together.
fn check_fit(before: &Objects, steps: &[Step], after: &Objects) -> Result<(), ObjectError> {
    after.check_ports()?;
    for step in steps {
        let Step::Remove(id @ ObjectId::Port(number)) = step else { continue };
        let (was, is) = (before.ports().get(*number), after.ports().get(*number));
        if is.map(|port| &port.name) == was.map(|port| &port.name) {
            continue;
        }
        // A mirror names ports by number, and is not to copy to another port from one moment to the next. One of the file is as
        // the file says, of whatever port that has the number there.
        let is_meant = |held: &Held| held.origin == Origin::File && is.is_some();
        let names_it = |held: &&Held| {
            let Object::Mirror(mirror) = &held.object else { return false };
            (mirror.port() == *number || mirror.copies.contains(number)) && !is_meant(held)
        };
        if let Some(mirror) = after.iter().find(names_it) {
            let reason = format!("port {number} is used by {}: delete that first", mirror.object.id());
            return Err(ObjectError { object: id.clone(), reason });
        }
    }
    Ok(())
}

/// Makes changes, and gives what is in force then. If one is refused, those before it are taken back.
pub fn make(
    backend: &dyn Backend,
    in_force: &Objects,
    steps: Vec<Step>,
    absence: Absence,
) -> Result<Objects, ObjectError> {
    let mut after = in_force.clone();
    for step in &steps {
        step.note(&mut after);
    }
    check_fit(in_force, &steps, &after)?;
    let mut made = Vec::new();
    for step in &steps {
        let object = step.object();
        let before = in_force.get(&object).map(|held| &held.object);
        let result = match step {
            Step::Remove(id) => remove(backend, id),
            Step::Put(object, _) => put(backend, object, absence),
            Step::Claim(_) => continue,
        };
        if let Err(refusal) = result {
            take_back(backend, in_force, &made);
            let put = if let Step::Put(object, _) = step { Some(object) } else { before };
            return Err(match put {
                Some(put) => put.error(&refusal),
                None => ObjectError { reason: format!("{object}: {refusal}"), object },
            });
        }
        made.push(step);
    }
    Ok(after)
}

/// Takes changes back, the last one first.
fn take_back(backend: &dyn Backend, in_force: &Objects, made: &[&Step]) {
    for step in made.iter().rev() {
        let id = step.object();
        // Whatever had become of it: a port that was replaced is removed when its second change is taken back, and made again
        // when its first one is.
        let result = match (step, in_force.get(&id)) {
            (Step::Put(Object::Port(_), _), _) | (Step::Put(..), None) => remove(backend, &id),
            (Step::Put(..) | Step::Remove(_), Some(held)) => put(backend, &held.object, Absence::Tolerated),
            (Step::Remove(_), None) | (Step::Claim(_), _) => Ok(()),
        };
        if let Err(refusal) = result {
            tracing::error!("{id} could not be made what it was before a change that was refused: {refusal}");
        }
    }
}

impl Step {
    fn note(&self, objects: &mut Objects) {
        match self {
            Self::Remove(id) => drop(objects.remove(id)),
            Self::Put(object, origin) => objects.put(object.clone(), *origin),
            Self::Claim(id) => {
                if let Some(held) = objects.held.get_mut(id) {
                    held.origin = Origin::File;
                }
            }
        }
    }
}

fn put(backend: &dyn Backend, object: &Object, absence: Absence) -> Result<(), Refusal> {
    match (object, absence) {
        (Object::Port(port), Absence::Refused) => backend.attach_port(port),
        (Object::Port(port), Absence::Tolerated) => backend.expect_port(port),
        (Object::Meter(meter), _) => Facet::Meters.require(backend.meters())?.set_meter(meter),
        (Object::TimeoutPolicy(policy), _) => {
            Facet::Connections.require(backend.connections())?.set_timeout_policy(policy)
        }
        (Object::Mirror(mirror), _) => Facet::Mirrors.require(backend.mirrors())?.set_mirror(mirror),
    }
}

fn remove(backend: &dyn Backend, id: &ObjectId) -> Result<(), Refusal> {
    match id {
        ObjectId::Port(number) => backend.detach_port(*number),
        ObjectId::Meter(id) => Facet::Meters.require(backend.meters())?.remove_meter(*id),
        ObjectId::TimeoutPolicy(name) => Facet::Connections.require(backend.connections())?.remove_timeout_policy(name),
        ObjectId::Mirror(name) => Facet::Mirrors.require(backend.mirrors())?.remove_mirror(name),
    }
}
