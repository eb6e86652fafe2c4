//! The objects in force, and the one way to change them.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_flow::port::{GonePort, PortMap};
use sluice_flow::{Backend, Port};
use sluice_journal::Journal;
use sluice_offload::OffloadQueue;

use super::file::{ObjectsFile, Saved};
use super::id::{ObjectError, ObjectId};
use super::keeper::Keeper;
use super::refused::RefusedObjects;
use super::registry::{Absence, ObjectKind, Origin};
use super::set::{Objects, for_each_kind};
use super::steps::{Refused, Step, Steps, difference, make, make_or_take_back};

/// The objects in force. Changes are made one at a time, each as a whole or not at all; a reader waits for none.
pub struct ObjectStore {
    backend: Arc<dyn Backend>,
    queue: Arc<OffloadQueue>,
    /// Has them survive the agent, if they do.
    keeper: Option<Keeper>,
    in_force: ArcSwap<Objects>,
    /// Objects of the last run that the device has refused so far. Changed with `changing` held.
    refused: ArcSwap<RefusedObjects>,
    /// Ports of the last run that are not there, until its flows are bound to what is.
    gone_ports: Mutex<Vec<GonePort>>,
    /// Held while the device makes a change, and never while the disk is waited for.
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
    /// with the former. What the device refuses of these is to be [tried again](Self::try_refused). A later change waits for the journal for
    /// at most as long as is given with it.
    pub fn open(
        backend: Arc<dyn Backend>,
        queue: Arc<OffloadQueue>,
        journal: (Option<Arc<Journal>>, Duration),
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
        let mut refused = RefusedObjects::default();
        for_each_kind!(Kind => { objects = restore::<Kind>(&*backend, objects, &saved, &mut refused); });
        for absent in objects.ports().iter().filter(|port| backend.is_absent(port.number)) {
            tracing::warn!(
                "the device of port {} ({}) is not there: its flows wait for it",
                absent.number,
                absent.name
            );
        }
        let gone = saved.of::<Port>().objects().filter(|port| !is_in(objects.ports(), port)).map(as_gone);
        let gone_ports = Mutex::new(gone.collect());
        let (in_force, refused) = (ArcSwap::from_pointee(objects), ArcSwap::from_pointee(refused));
        let keeper = file.map(|file| Keeper::new(file, journal));
        Ok(Self { backend, queue, keeper, in_force, refused, gone_ports, changing: Mutex::default() })
    }

    /// Those in force.
    pub fn in_force(&self) -> Arc<Objects> {
        self.in_force.load_full()
    }

    /// Those that were made at run time in an earlier run, and that the device has refused since.
    pub fn refused(&self) -> Arc<RefusedObjects> {
        self.refused.load_full()
    }

    /// The ports in force.
    pub fn ports(&self) -> Arc<PortMap> {
        self.in_force.load().ports().clone()
    }

    /// Makes an object at run time, or changes it in place. Waits until it is kept.
    pub fn put<T: ObjectKind>(&self, object: T) -> Result<(), ChangeError> {
        self.put_by(object, Origin::RunTime)?;
        self.keep()
    }

    /// The same for a source of flows, which does not wait for the disk.
    pub fn put_for_source<T: ObjectKind>(&self, object: T) -> Result<(), ObjectError> {
        self.put_by(object, Origin::Source)?;
        self.keep_later();
        Ok(())
    }

    fn put_by<T: ObjectKind>(&self, object: T, origin: Origin) -> Result<(), ObjectError> {
        let _one_at_a_time = self.changing.lock();
        let before = self.in_force();
        if let Some(reason) = before.of::<T>().objects().find_map(|known| object.conflict(known)) {
            return Err(ObjectError { object: object.id().into(), reason });
        }
        self.make(&before, &Steps::one(Step::Put(object, origin)), Absence::Refused)
    }

    /// Removes an object. The flows that name a port are refused until it is back. Waits until that is kept.
    pub fn remove<T: ObjectKind>(&self, id: &T::Id) -> Result<(), ChangeError> {
        self.take_out::<T>(id)?;
        self.keep()
    }

    /// The same for a source of flows, which does not wait for the disk.
    pub fn remove_for_source<T: ObjectKind>(&self, id: &T::Id) -> Result<(), ObjectError> {
        self.take_out::<T>(id)?;
        self.keep_later();
        Ok(())
    }

    fn take_out<T: ObjectKind>(&self, id: &T::Id) -> Result<(), ObjectError> {
        let _one_at_a_time = self.changing.lock();
        let before = self.in_force();
        if before.of::<T>().get(id).is_none() {
            let mut refused = RefusedObjects::clone(&self.refused());
            if refused.remove::<T>(id) {
                self.refused.store(refused.into());
                self.note_kept();
                return Ok(());
            }
            let object = id.clone().into();
            return Err(ObjectError { reason: format!("there is no {object}"), object });
        }
        self.make(&before, &Steps::one(Step::<T>::Remove(id.clone())), Absence::Refused)
    }

    /// Makes the changes that lead to what the configuration file says by now; what was made at run time stays. Returns the keys of
    /// the file under which something changed.
    pub fn reload(&self, configured: &Objects) -> Result<Vec<&'static str>, ObjectError> {
        let steps = {
            let _one_at_a_time = self.changing.lock();
            let before = self.in_force();
            let steps = difference(&before, configured)?;
            self.make(&before, &steps, Absence::Tolerated)?;
            steps
        };
        // What is in the file is there for the next run, too: a failure is no reason to say no, and is logged.
        let _ = self.keep();
        Ok(steps.keys())
    }

    /// Tries once more to make what the device has refused so far. Returns whether some of it is in force now.
    pub fn try_refused(&self) -> bool {
        let before = self.refused();
        if before.is_empty() {
            return false;
        }
        let mut is_any_made = false;
        // A kind refers only to kinds before it.
        for_each_kind!(Kind => {
            for object in before.of::<Kind>() {
                is_any_made |= self.try_again(object);
            }
        });
        if is_any_made {
            self.keep_later();
        }
        is_any_made
    }

    fn try_again<T: ObjectKind>(&self, object: &T) -> bool {
        let _one_at_a_time = self.changing.lock();
        let mut refused = RefusedObjects::clone(&self.refused());
        if !refused.of::<T>().any(|known| known == object) {
            // Somebody has removed it meanwhile, or has set it otherwise.
            return false;
        }
        let step = Steps::one(Step::Put(object.clone(), Origin::RunTime));
        match self.make(&self.in_force(), &step, Absence::Tolerated) {
            Ok(()) => {
                tracing::info!("{}, which was set at run time and then refused, is in force again", object.id().into());
                true
            }
            Err(error) => {
                refused.put(object.clone(), error.reason);
                self.refused.store(refused.into());
                false
            }
        }
    }

    /// Makes changes. The caller holds `changing`.
    fn make(&self, before: &Objects, steps: &Steps, absence: Absence) -> Result<(), ObjectError> {
        let made = make_or_take_back(&*self.backend, before, steps, absence);
        let after = Arc::new(made.map_err(|refused| self.settle_refused(refused))?);
        self.in_force.store(after.clone());
        let mut refused = RefusedObjects::clone(&self.refused());
        refused.give_way_to(&after);
        self.refused.store(refused.into());
        self.settle_ports(before.ports(), after.ports());
        self.note_kept();
        Ok(())
    }

    /// Has the keeper know what there is to be kept, once what became of flows by that is in the table.
    fn note_kept(&self) {
        if let Some(keeper) = &self.keeper {
            let (in_force, refused) = (self.in_force(), self.refused());
            keeper.note(if refused.is_empty() { in_force } else { refused.beside(&in_force).into() });
        }
    }

    /// Flows are bound to the ports that they were accepted for: those of ports that are gone go out of the device, and those
    /// of ports that are back are looked at again. Those of a port that is another kind of port by now stay, with new rules.
    fn settle_ports(&self, before: &PortMap, after: &PortMap) {
        for gone in before.iter().filter(|port| !is_in(after, port)) {
            let flows = self.queue.withhold(&as_gone(gone));
            tracing::info!(port = %gone.name, "port {} is gone, {flows} flows wait for it", gone.number);
        }
        let is_other_kind = |port: &&Port| is_in(before, port) && before.get(port.number) != Some(*port);
        for changed in after.iter().filter(is_other_kind) {
            self.queue.redo_port(changed.number);
        }
        if after.iter().any(|port| !is_in(before, port)) {
            self.release(after);
        }
    }

    /// Rules may still send to the network device that a port had before it was taken out and made again, and packets would be lost there.
    fn settle_refused(&self, Refused { error, made_again }: Refused) -> ObjectError {
        for id in made_again {
            if let ObjectId::Port(number) = id {
                self.queue.redo_port(number);
            }
        }
        error
    }

    /// Has flows looked at that wait for one of these ports. Goes through all flows, whatever the number of ports.
    fn release(&self, ports: &PortMap) {
        self.queue.release(|gone| ports.get(gone.number).is_some_and(|port| port.name == gone.name));
    }

    /// Waits until the objects in force are kept, or it is clear that they are not. Whoever the [waker](Self::set_waker) wakes tries again
    /// what fails.
    fn keep(&self) -> Result<(), ChangeError> {
        self.keeper.as_ref().map_or(Ok(()), Keeper::wait).map_err(ChangeError::NotKept)
    }

    fn keep_later(&self) {
        self.keeper.iter().for_each(Keeper::wake);
    }

    /// Has this woken when the file is behind the objects in force: it is time to [catch up](Self::catch_up), on a thread that may
    /// wait for the disk. From then on nobody else does.
    pub fn set_waker(&self, waker: Waker) {
        if let Some(keeper) = &self.keeper {
            keeper.set_waker(waker);
        }
    }

    /// Writes the objects in force to the file, if it is behind, after the journal has what became of flows by them. Who fails tries
    /// again a while later.
    pub fn catch_up(&self) -> Result<(), ChangeError> {
        self.keeper.as_ref().map_or(Ok(()), Keeper::keep).map_err(ChangeError::NotKept)
    }

    /// Whether objects survive the agent at all.
    pub const fn is_kept(&self) -> bool {
        self.keeper.is_some()
    }

    /// Why the objects in force do not survive a restart; `None` if they do.
    pub fn failure(&self) -> Option<String> {
        let failure = self.keeper.as_ref()?.failure()?;
        Some(format!(
            "ports, meters, mirrors and timeout policies are in force, but do not survive a restart: {failure}"
        ))
    }

    /// Binds the flows of the last run to its ports, which may be others by now. To be called before anything is adopted.
    pub fn bind_restored_flows(&self) {
        for gone in std::mem::take(&mut *self.gone_ports.lock()) {
            let flows = self.queue.withhold(&gone);
            if flows > 0 {
                tracing::warn!(port = %gone.name, "port {} of the last run is gone, {flows} flows wait for it", gone.number);
            }
        }
        self.release(&self.ports());
        self.note_kept();
        // A failure is logged.
        let _ = self.keep();
    }

    /// Whether objects of an earlier run were lost by damage, and what to do. Does not wait for the disk.
    pub fn damage(&self) -> Option<String> {
        self.keeper.as_ref().and_then(|keeper| keeper.file().damage())
    }

    /// Looks on the disk whether somebody has seen to that damage. Whoever waits for the disk anyway does so now and then.
    pub fn look_at_damage(&self) {
        self.keeper.iter().for_each(|keeper| keeper.file().look_at_damage());
    }
}

/// Makes the objects of a kind again that were made at run time in the last run. Where the configuration file says otherwise, it wins.
/// What is refused goes to `refused_objects`; a source makes its own objects again itself.
fn restore<T: ObjectKind>(
    backend: &dyn Backend,
    mut objects: Objects,
    saved: &Objects,
    refused_objects: &mut RefusedObjects,
) -> Objects {
    let mut missing = Vec::new();
    for entry in saved.of::<T>().iter().filter(|entry| entry.origin != Origin::File) {
        let id = entry.object.id();
        match objects.of::<T>().get(&id) {
            None => missing.push(entry),
            Some(known) if known.object == entry.object => {}
            Some(_) => {
                let id = id.into();
                tracing::warn!("{id} is as the configuration file says, and no longer as it was set at run time");
            }
        }
    }
    loop {
        let (count, mut refused) = (missing.len(), Vec::new());
        for entry in missing {
            let step = Steps::one(Step::Put(entry.object.clone(), entry.origin));
            match make(backend, &objects, &step, Absence::Tolerated) {
                Ok(after) => objects = after,
                Err(error) => refused.push((entry, error)),
            }
        }
        // A tunnel may come before its underlay.
        if refused.len() < count {
            missing = refused.into_iter().map(|(entry, _)| entry).collect();
            continue;
        }
        for (entry, error) in refused {
            let id = entry.object.id().into();
            if entry.origin == Origin::RunTime {
                tracing::error!("{id}, which was set at run time, is not in force, and is tried again: {error}");
                refused_objects.put(entry.object.clone(), error.reason);
            } else {
                tracing::warn!("{id}, which a source of flows had set, is not in force any more: {error}");
            }
        }
        return objects;
    }
}

fn as_gone(port: &Port) -> GonePort {
    GonePort { number: port.number, name: port.name.clone() }
}

fn is_in(ports: &PortMap, port: &Port) -> bool {
    ports.get(port.number).is_some_and(|other| other.name == port.name)
}
