//! The device: what the commands change, and the record of what went wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use super::port::PhysicalPort;
use super::queue::Queues;
use super::vport::Vport;
use crate::command::Refusal;
use crate::objects::Objects;
use crate::profile::{Page, Profile, Room};
use crate::steering::{Port, Steering, Telling, vhca_id};
use crate::{command, steering};

/// How far the driver has come with its function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Not enabled.
    Down,
    /// Enabled: capabilities, pages and registers.
    Enabled,
    /// Initialized: everything.
    Initialized,
}

/// A ConnectX: commands in, answers out. Memory is handed in where a queue lies in it.
#[derive(Debug)]
pub struct Hca {
    pub(crate) profile: Profile,
    pub(crate) stage: Stage,
    pub(crate) issi: u16,
    /// Page 0 as the driver has set it.
    pub(crate) current: Vec<u8>,
    /// Pages of memory that the driver has lent.
    pub(crate) pages: Vec<u64>,
    pub(crate) objects: Objects,
    pub(crate) queues: Queues,
    pub(crate) vports: BTreeMap<u16, Vport>,
    /// Virtual functions that the host has now.
    pub(super) host_vfs: u16,
    /// The physical function of the host has been enabled by the embedded CPU.
    pub(crate) host_enabled: bool,
    pub(crate) l2_table: BTreeMap<u32, u64>,
    pub(crate) port: PhysicalPort,
    pub(crate) steering: Steering,
    pub(super) sent: Vec<(Port, Vec<u8>)>,
    /// How many writes of queue pairs from now on one is to fail.
    pub(super) failing_write: Option<u64>,
    pub(super) faults: Vec<CommandFault>,
    /// What connections count their retries by ([`Hca::tell_time`]).
    pub(super) clock: Duration,
    /// How much later answers are due that were given at once.
    late: Duration,
    /// Whether it is dead.
    pub(super) is_dead: bool,
    pub(super) executed: BTreeMap<u16, u64>,
    pub(super) refusals: Vec<Refusal>,
    pub(super) complaints: Vec<String>,
}

/// A command with which something is to go wrong, as a test wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandFault {
    /// Of this opcode.
    pub opcode: u16,
    /// Once so many have gone well.
    pub after: u32,
    /// So many times.
    pub times: u32,
    /// What goes wrong.
    pub trouble: Trouble,
}

/// What can go wrong with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It is not carried out, and answered so.
    Refused {
        /// With this status.
        status: u8,
        /// And this syndrome.
        syndrome: u32,
    },
    /// It is carried out at once, and answered so much later. Others go on in the meantime.
    Late(Duration),
    /// It is neither carried out nor answered, until whoever serves the device answers it after all.
    Lost,
}

impl Hca {
    /// A device that nobody has touched yet.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            stage: Stage::Down,
            issi: 0,
            current: profile.page(Page::General),
            pages: Vec::new(),
            objects: Objects::default(),
            queues: Queues::default(),
            vports: profile.vports().into_iter().map(|number| (number, Vport::new(number))).collect(),
            host_vfs: profile.host_vfs,
            host_enabled: false,
            l2_table: BTreeMap::new(),
            port: PhysicalPort::default(),
            steering: tables_of(&profile),
            sent: Vec::new(),
            failing_write: None,
            faults: Vec::new(),
            clock: Duration::ZERO,
            late: Duration::ZERO,
            is_dead: false,
            executed: BTreeMap::new(),
            refusals: Vec::new(),
            complaints: Vec::new(),
        }
    }

    /// What goes wrong with a command's delivery, which whoever delivers it has to ask for.
    pub fn delivery(&mut self, input: &[u8]) -> Option<Trouble> {
        self.trouble(command::opcode(input), |trouble| matches!(trouble, Trouble::Late(_) | Trouble::Lost))
    }

    /// Has an answer that is given now be due so much later, for who delivers it in the end ([`Hca::take_lateness`]).
    pub fn be_late(&mut self, by: Duration) {
        self.late += by;
    }

    /// How much later those answers are due that were given since the last time.
    pub fn take_lateness(&mut self) -> Duration {
        std::mem::take(&mut self.late)
    }

    pub(super) fn trouble(&mut self, opcode: u16, wanted: impl Fn(&Trouble) -> bool) -> Option<Trouble> {
        let is_due = |fault: &&mut CommandFault| fault.opcode == opcode && fault.times > 0 && wanted(&fault.trouble);
        let fault = self.faults.iter_mut().find(is_due)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times -= 1;
        Some(fault.trouble)
    }

    /// Has commands fail from now on.
    pub fn inject(&mut self, fault: CommandFault) {
        self.faults.push(fault);
    }

    /// How far the driver is.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Which device it is.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// How often a command has come.
    #[must_use]
    pub fn executed(&self, opcode: u16) -> u64 {
        self.executed.get(&opcode).copied().unwrap_or_default()
    }

    /// How often each command has come.
    pub fn all_executed(&self) -> impl Iterator<Item = (u16, u64)> {
        self.executed.iter().map(|(opcode, times)| (*opcode, *times))
    }

    /// All commands that were refused, other than by [`Hca::inject`] and for want of room, the oldest first.
    #[must_use]
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// What went wrong outside of commands: memory that is not there, doorbells of queues that do not exist, queues that ran over.
    #[must_use]
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The flow tables.
    #[must_use]
    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// The flow tables, to be changed other than by commands.
    pub fn steering_mut(&mut self) -> &mut Steering {
        &mut self.steering
    }

    /// Lets time go on for meters, which otherwise stands still.
    pub fn pass_time(&mut self, time: Duration) {
        self.steering.pass_time(time);
    }

    /// Says what time it is, for requests of connections that wait for a buffer or for an answer. Where nobody says so, they wait.
    pub fn tell_time(&mut self, now: Duration) {
        self.clock = now;
    }

    /// How often a queue pair had no buffer for what its other side sent, and said so (RNR).
    #[must_use]
    pub fn rnr(&self) -> u64 {
        self.queues.rnr
    }

    /// Has counters be told wrong from now on, or right again. They count on.
    pub fn tell_counters(&mut self, telling: Telling) {
        self.steering.tell_counters(telling);
    }

    /// Changes how much room there is, which the driver is not told. What is there stays.
    pub fn set_room(&mut self, room: Room) {
        self.profile.room = room;
        self.steering.limit(room.entries, room.counters);
    }

    /// What the driver has created and not destroyed, and pages that it has not got back. Empty after a clean removal.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = self.objects.names().map(|name| name.to_string()).collect();
        if self.steering.objects_left() > 0 {
            left.push(format!("{} objects of steering", self.steering.objects_left()));
        }
        if !self.pages.is_empty() {
            left.push(format!("{} pages", self.pages.len()));
        }
        if !self.profile.embedded_cpu && self.host_vfs > 0 {
            left.push(format!("{} virtual functions", self.host_vfs));
        }
        left
    }

    /// As after a reset of the function: nothing is left of what the driver did, except the record of it. The host's functions stay, if
    /// the host has its own driver.
    pub fn reset(&mut self) {
        let fresh = Self::new(self.profile);
        let former = std::mem::replace(self, fresh);
        if self.profile.embedded_cpu {
            self.host_vfs = former.host_vfs;
        }
        self.faults = former.faults;
        self.executed = former.executed;
        self.refusals = former.refusals;
        self.complaints = former.complaints;
    }

    /// Becomes another device, with the record of what was.
    pub fn exchange(&mut self, profile: Profile) {
        self.profile = profile;
        self.reset();
        self.host_vfs = profile.host_vfs;
    }

    /// Notes what went wrong outside of commands, for [`Hca::complaints`].
    pub fn complain(&mut self, text: impl Into<String>) {
        self.complaints.push(text.into());
    }
}

/// Flow tables of a device, empty.
fn tables_of(profile: &Profile) -> Steering {
    let manager = profile.own_vport();
    let mut tables = Steering::new(steering::Profile {
        manager,
        vhca_id: vhca_id(manager),
        max_level: (crate::profile::MAX_LEVELS - 1).to_be_bytes()[7],
        steering_format: profile.steering_format,
        software_owner: profile.software_steering,
        finds_more: profile.software_steering && profile.finds_more,
        entries: profile.room.entries,
        counters: profile.room.counters,
        ..Default::default()
    });
    for vport in profile.vports() {
        tables.add_vport(vport);
    }
    tables
}
