//! The objects in force, and the one way to change them.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_flow::port::{GonePort, PortMap};
use sluice_flow::{Backend, Port};
use sluice_journal::Journal;
use sluice_offload::OffloadQueue;

use super::file::{ObjectsFile, Saved};
use super::id::ObjectError;
use super::registry::{Absence, Entry, ObjectKind, Origin};
use super::set::{Objects, for_each_kind};
use super::steps::{Step, Steps, difference, make};

/// The objects in force. Changes are made one at a time, each as a whole or not at all; a reader waits for none.
pub struct ObjectStore {
    backend: Arc<dyn Backend>,
    queue: Arc<OffloadQueue>,
    journal: Option<Arc<Journal>>,
    /// How long a change waits for the journal.
    patience: Duration,
    /// Where they survive the agent, if they do.
    file: Option<ObjectsFile>,
    in_force: ArcSwap<Objects>,
    /// Ports of the last run that are not there, until its flows are bound to what is.
    gone_ports: Mutex<Vec<GonePort>>,
    /// Held while the device makes a change.
    changing: Mutex<()>,
}

/// Why a change was not made, or not for good.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// An object cannot be as it is wanted. Nothing is changed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The change is in force.
    #[error("the change is in force, but does not survive a restart: {0}")]
    NotKept(String),
}

impl ObjectStore {
    /// Makes the objects of the configuration file, then those of the last run that were made at run time, as far as they do not clash
    /// with the former. A later change waits for the journal for at most `patience`.
    pub fn open(
        backend: Arc<dyn Backend>,
        queue: Arc<OffloadQueue>,
        (journal, patience): (Option<Arc<Journal>>, Duration),
        configured: &Objects,
        kept: Option<(ObjectsFile, Saved)>,
    ) -> Result<Self, ObjectError> {
        let steps = difference(&Objects::default(), configured)?;
        let mut objects = make(&*backend, &Objects::default(), &steps, Absence::Tolerated)?;
        let (file, saved) = kept.unzip();
        let Saved { objects: saved, damage } = saved.unwrap_or_default();
        if let Some(damage) = &damage {
            tracing::error!("ports, meters, mirrors and timeout policies of the last run: {damage}");
        }
        for_each_kind!(Kind => { objects = restore::<Kind>(&*backend, objects, &saved); });
        for absent in objects.ports().iter().filter(|port| backend.is_absent(port.number)) {
            tracing::warn!(
                "the device of port {} ({}) is not there: its flows wait for it",
                absent.number,
                absent.name
            );
        }
        let gone = saved.of::<Port>().objects().filter(|port| !is_in(objects.ports(), port)).map(as_gone);
        let gone_ports = Mutex::new(gone.collect());
        let in_force = ArcSwap::from_pointee(objects);
        Ok(Self { backend, queue, journal, patience, file, in_force, gone_ports, changing: Mutex::default() })
    }

    /// Those in force.
    pub fn in_force(&self) -> Arc<Objects> {
        self.in_force.load_full()
    }

    /// The ports in force.
    pub fn ports(&self) -> Arc<PortMap> {
        self.in_force.load().ports().clone()
    }

    /// Makes an object at run time, or changes it in place.
    pub fn put<T: ObjectKind>(&self, object: T) -> Result<(), ChangeError> {
        self.put_by(object, Origin::RunTime)
    }

    /// The same by whom that has.
    pub fn put_by<T: ObjectKind>(&self, object: T, origin: Origin) -> Result<(), ChangeError> {
        let _one_at_a_time = self.changing.lock();
        let before = self.in_force();
        if let Some(reason) = before.of::<T>().objects().find_map(|known| object.conflict(known)) {
            return Err(ObjectError { object: object.id().into(), reason }.into());
        }
        self.make(&before, &Steps::one(Step::Put(object, origin)), Absence::Refused)
    }

    /// Removes an object. The flows that name a port are refused until it is back.
    pub fn remove<T: ObjectKind>(&self, id: &T::Id) -> Result<(), ChangeError> {
        let _one_at_a_time = self.changing.lock();
        let before = self.in_force();
        if before.of::<T>().get(id).is_none() {
            let object = id.clone().into();
            return Err(ObjectError { reason: format!("there is no {object}"), object }.into());
        }
        self.make(&before, &Steps::one(Step::<T>::Remove(id.clone())), Absence::Refused)
    }

    /// Makes the changes that lead to what the configuration file says by now; what was made at run time stays. Returns the keys of
    /// the file under which something changed.
    pub fn reload(&self, configured: &Objects) -> Result<Vec<&'static str>, ObjectError> {
        let _one_at_a_time = self.changing.lock();
        let before = self.in_force();
        let steps = difference(&before, configured)?;
        match self.make(&before, &steps, Absence::Tolerated) {
            Ok(()) => {}
            Err(ChangeError::Object(error)) => return Err(error),
            // What is in the file is there for the next run, too.
            Err(error @ ChangeError::NotKept(_)) => tracing::error!("{error}"),
        }
        Ok(steps.keys())
    }

    /// Makes changes. The caller holds `changing`.
    fn make(&self, before: &Objects, steps: &Steps, absence: Absence) -> Result<(), ChangeError> {
        let after = Arc::new(make(&*self.backend, before, steps, absence)?);
        self.in_force.store(after.clone());
        self.settle_ports(before.ports(), after.ports());
        self.keep()
    }

    /// Flows are bound to the ports that they were accepted for: those of ports that are gone go out of the device, and those
    /// of ports that are back are looked at again.
    fn settle_ports(&self, before: &PortMap, after: &PortMap) {
        for gone in before.iter().filter(|port| !is_in(after, port)) {
            let flows = self.queue.withhold(&as_gone(gone));
            tracing::info!(port = %gone.name, "port {} is gone, {flows} flows wait for it", gone.number);
        }
        for back in after.iter().filter(|port| !is_in(before, port)) {
            self.queue.release(&as_gone(back));
        }
    }

    /// Writes the objects in force to the file, after the journal has what became of flows by them.
    fn keep(&self) -> Result<(), ChangeError> {
        let Some(file) = &self.file else { return Ok(()) };
        // First the flows that wait for a port that is gone: until the file is replaced, the port is there for the next run.
        let written = self.journal.as_ref().map_or(Ok(()), |journal| journal.wait(self.patience));
        written.map_err(|error| ChangeError::NotKept(error.to_string()))?;
        file.save(&self.in_force()).map_err(|error| ChangeError::NotKept(error.to_string()))
    }

    /// Binds the flows of the last run to its ports, which may be others by now. To be called before anything is adopted.
    pub fn bind_restored_flows(&self) {
        for gone in std::mem::take(&mut *self.gone_ports.lock()) {
            let flows = self.queue.withhold(&gone);
            if flows > 0 {
                tracing::warn!(port = %gone.name, "port {} of the last run is gone, {flows} flows wait for it", gone.number);
            }
        }
        for port in self.ports().iter() {
            self.queue.release(&as_gone(port));
        }
        if let Err(error) = self.keep() {
            tracing::error!("{error}");
        }
    }

    /// Whether objects of an earlier run were lost by damage, and what to do. Looks at the disk.
    pub fn damage(&self) -> Option<String> {
        self.file.as_ref().and_then(ObjectsFile::damage)
    }
}

/// Makes the objects of a kind again that were made at run time in the last run. Where the configuration file says otherwise, it wins.
fn restore<T: ObjectKind>(backend: &dyn Backend, mut objects: Objects, saved: &Objects) -> Objects {
    let at_run_time = || saved.of::<T>().iter().filter(|entry| entry.origin != Origin::File);
    let of_others = at_run_time().filter(|entry| !entry.object.refers_to_its_kind());
    for Entry { object, origin } in of_others.chain(at_run_time().filter(|entry| entry.object.refers_to_its_kind())) {
        let id = object.id().into();
        match objects.of::<T>().get(&object.id()) {
            Some(known) if known.object == *object => {}
            Some(_) => {
                tracing::warn!("{id} is as the configuration file says, and no longer as it was set at run time");
            }
            None => {
                let step = Steps::one(Step::Put(object.clone(), *origin));
                match make(backend, &objects, &step, Absence::Tolerated) {
                    Ok(after) => objects = after,
                    Err(error) => tracing::error!("{id}, which was set at run time, is not in force any more: {error}"),
                }
            }
        }
    }
    objects
}

fn as_gone(port: &Port) -> GonePort {
    GonePort { number: port.number, name: port.name.clone() }
}

fn is_in(ports: &PortMap, port: &Port) -> bool {
    ports.get(port.number).is_some_and(|other| other.name == port.name)
}
