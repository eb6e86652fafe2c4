//! Changes to the objects in force: planned first, then made one after the other, and taken back if one is refused.

use std::sync::Arc;

use sluice_flow::backend::Checker;
use sluice_flow::mirror::Mirror;
use sluice_flow::{Backend, Port, Refusal};

use super::id::{ObjectError, ObjectId};
use super::registry::{Absence, Entry, ObjectKind, Origin};
use super::set::{Objects, for_each_kind};

/// A change of one object.
#[derive(Clone, Debug)]
pub(super) enum Step<T: ObjectKind> {
    /// The object goes.
    Remove(T::Id),
    /// The object comes, or changes in place.
    Put(T, Origin),
    /// The object is there as it is wanted, and is the configuration file's from now on.
    Claim(T::Id),
}

/// Changes that are made in order, all or none.
#[derive(Default)]
pub struct Steps(Vec<Box<dyn Change>>);

/// A step, whatever it is about.
trait Change {
    /// The key of such objects in the configuration file.
    fn key(&self) -> &'static str;

    /// What it is about.
    fn id(&self) -> ObjectId;

    /// Whether the object goes.
    fn is_removal(&self) -> bool;

    /// Notes that it is made.
    fn note(&self, objects: &mut Objects);

    /// Makes it in the device.
    fn make(&self, backend: &dyn Backend, in_force: &Objects, absence: Absence) -> Result<(), ObjectError>;

    /// Makes the object in the device what it is in force.
    fn take_back(&self, backend: &dyn Backend, in_force: &Objects) -> Result<(), Refusal>;
}

impl<T: ObjectKind> Change for Step<T> {
    fn key(&self) -> &'static str {
        T::KEY
    }

    fn id(&self) -> ObjectId {
        match self {
            Self::Remove(id) | Self::Claim(id) => id.clone().into(),
            Self::Put(object, _) => object.id().into(),
        }
    }

    fn is_removal(&self) -> bool {
        matches!(self, Self::Remove(_))
    }

    fn note(&self, objects: &mut Objects) {
        let registry = T::registry_mut(objects);
        match self {
            Self::Remove(id) => registry.remove(id),
            Self::Put(object, origin) => registry.put(object.clone(), *origin),
            Self::Claim(id) => {
                if let Some(object) = registry.get(id).map(|entry| entry.object.clone()) {
                    registry.put(object, Origin::File);
                }
            }
        }
    }

    fn make(&self, backend: &dyn Backend, in_force: &Objects, absence: Absence) -> Result<(), ObjectError> {
        match self {
            Self::Remove(id) => T::unmake(id, backend).map_err(|refusal| match T::registry(in_force).get(id) {
                Some(entry) => entry.object.refused(&refusal),
                None => ObjectError { reason: format!("{}: {refusal}", self.id()), object: self.id() },
            }),
            Self::Put(object, _) => object.make(backend, absence).map_err(|refusal| object.refused(&refusal)),
            Self::Claim(_) => Ok(()),
        }
    }

    fn take_back(&self, backend: &dyn Backend, in_force: &Objects) -> Result<(), Refusal> {
        let before = |id| T::registry(in_force).get(id).map(|entry| &entry.object);
        match self {
            Self::Put(object, _) => match before(&object.id()) {
                Some(known) if object.conflict(known).is_none() => known.make(backend, Absence::Tolerated),
                // One that was replaced is made again when its removal is taken back.
                _ => T::unmake(&object.id(), backend),
            },
            Self::Remove(id) => before(id).map_or(Ok(()), |known| known.make(backend, Absence::Tolerated)),
            Self::Claim(_) => Ok(()),
        }
    }
}

impl Steps {
    /// A single one.
    pub(super) fn one<T: ObjectKind>(step: Step<T>) -> Self {
        Self(vec![Box::new(step)])
    }

    /// The keys of the configuration file under which something changes, in order.
    pub fn keys(&self) -> Vec<&'static str> {
        let mut keys: Vec<_> = self.0.iter().map(|step| step.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns what is in force once they are made. Fails if that does not fit together.
    fn lead_to(&self, in_force: &Objects) -> Result<Objects, ObjectError> {
        let mut after = in_force.clone();
        self.0.iter().for_each(|step| step.note(&mut after));
        after.port_map = Arc::new(after.check_ports(in_force.ports())?);
        check_mirrors(in_force, &after)?;
        Ok(after)
    }
}

/// Returns what must change for the file's objects to be in force. What came at run time stays; where it differs from the file in
/// what can be changed in place, the file wins. Fails if a port of the file clashes with one of the run time.
pub fn difference(in_force: &Objects, file: &Objects) -> Result<Steps, ObjectError> {
    let mut plan = Plan::default();
    for_each_kind!(Kind => { plan.add::<Kind>(in_force, file)?; });
    let Plan { gone, replaced, put } = plan;
    // Objects go before those that they may refer to.
    let steps = Steps(gone.into_iter().rev().chain(replaced).chain(put).collect());
    steps.lead_to(in_force).map(|_| steps)
}

/// Checks the objects of a file as far as that can be done without the device: whether they fit together, and whether a device of this
/// kind could take them.
pub fn check(checker: &mut dyn Checker, file: &Objects) -> Result<(), ObjectError> {
    difference(&Objects::default(), file)?;
    for_each_kind!(Kind => {
        for object in file.of::<Kind>().objects() {
            object.check(checker).map_err(|refusal| object.refused(&refusal))?;
        }
    });
    Ok(())
}

/// Steps by when they are made.
#[derive(Default)]
struct Plan {
    gone: Vec<Box<dyn Change>>,
    replaced: Vec<Box<dyn Change>>,
    put: Vec<Box<dyn Change>>,
}

impl Plan {
    fn add<T: ObjectKind>(&mut self, in_force: &Objects, file: &Objects) -> Result<(), ObjectError> {
        let (in_force, file) = (T::registry(in_force), T::registry(file));
        for Entry { object, .. } in in_force.iter().filter(|entry| entry.origin == Origin::File) {
            if file.get(&object.id()).is_none() {
                self.gone.push(Box::new(Step::<T>::Remove(object.id())));
            }
        }
        for object in file.objects() {
            let put = || Box::new(Step::Put(object.clone(), Origin::File));
            let Some(Entry { object: known, origin }) = in_force.get(&object.id()) else {
                self.put.push(put());
                continue;
            };
            match (object.conflict(known), origin) {
                _ if known == object => {
                    if *origin != Origin::File {
                        self.put.push(Box::new(Step::<T>::Claim(object.id())));
                    }
                }
                (Some(conflict), Origin::RunTime | Origin::Source) => {
                    let whose =
                        if *origin == Origin::Source { "a source of flows has" } else { "was added at run time" };
                    let reason = format!("{conflict}, which {whose}: delete that first");
                    return Err(ObjectError { object: object.id().into(), reason });
                }
                (Some(_), Origin::File) => {
                    self.replaced.push(Box::new(Step::<T>::Remove(object.id())));
                    self.put.push(put());
                }
                (None, _) => self.put.push(put()),
            }
        }
        Ok(())
    }
}

/// Fails if a port is gone, or has become another one, that a mirror names: it is not to copy to another port from one moment to
/// the next. A mirror of the file is as the file says, of whatever port that has the number there.
fn check_mirrors(before: &Objects, after: &Objects) -> Result<(), ObjectError> {
    let is_in = |port: &&Port| after.ports().get(port.number).is_some_and(|other| other.name == port.name);
    for port in before.ports().iter().filter(|port| !is_in(port)) {
        let number = port.number;
        let is_meant = |origin| origin == Origin::File && after.ports().get(number).is_some();
        let names_it = |Entry { object: mirror, origin }: &&Entry<Mirror>| {
            (mirror.port() == number || mirror.copies.contains(&number)) && !is_meant(*origin)
        };
        if let Some(mirror) = after.mirrors.iter().find(names_it) {
            let reason = format!("port {number} is used by {}: delete that first", mirror.object.title());
            return Err(ObjectError { object: number.into(), reason });
        }
    }
    Ok(())
}

/// Makes changes, and returns what is in force then. If one is refused, those before it are taken back.
pub fn make(
    backend: &dyn Backend,
    in_force: &Objects,
    steps: &Steps,
    absence: Absence,
) -> Result<Objects, ObjectError> {
    make_or_take_back(backend, in_force, steps, absence).map_err(|refused| refused.error)
}

/// Changes that were refused: what is in force is what was before.
pub(super) struct Refused {
    /// Why.
    pub(super) error: ObjectError,
    /// What was removed and is made again: by now it may be another one to the device, such as a tunnel with a new network device.
    pub(super) made_again: Vec<ObjectId>,
}

/// The same, and says what the device has made anew for a change that was refused.
pub(super) fn make_or_take_back(
    backend: &dyn Backend,
    in_force: &Objects,
    steps: &Steps,
    absence: Absence,
) -> Result<Objects, Refused> {
    let after = steps.lead_to(in_force).map_err(|error| Refused { error, made_again: Vec::new() })?;
    for (index, step) in steps.0.iter().enumerate() {
        if let Err(error) = step.make(backend, in_force, absence) {
            let mut made_again = Vec::new();
            for step in steps.0[..index].iter().rev() {
                if let Err(refusal) = step.take_back(backend, in_force) {
                    let id = step.id();
                    tracing::error!("{id} could not be made what it was before a change that was refused: {refusal}");
                }
                made_again.extend(step.is_removal().then(|| step.id()));
            }
            return Err(Refused { error, made_again });
        }
    }
    Ok(after)
}
