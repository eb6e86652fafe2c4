//! The device without its bus: what the commands change, and what packets and doorbells do.

pub(crate) mod aso;
pub(crate) mod flush;
pub(crate) mod function;
pub(crate) mod general;
pub(crate) mod hairpin;
pub(crate) mod hash;
pub(crate) mod keys;
pub(crate) mod offload;
pub(crate) mod pairs;
pub(crate) mod place;
pub(crate) mod queues;
pub(crate) mod receive;
pub(crate) mod register;
pub(crate) mod resources;
pub(crate) mod ring;
pub(crate) mod send;
pub(crate) mod vport;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command::{self, Failure, Input, Refusal, Status};
use crate::memory::Memory;
use crate::objects::Objects;
use crate::profile::{Page, Profile, Room};
use crate::steering::{self, Dump, Origin, Port, Steering, Telling, Walk, vhca_id};
use keys::Use;
use queues::Queues;
use vport::Vport;

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
    host_vfs: u16,
    /// The physical function of the host has been enabled by the embedded CPU.
    pub(crate) host_enabled: bool,
    pub(crate) l2_table: BTreeMap<u32, u64>,
    pub(crate) port: register::PhysicalPort,
    pub(crate) steering: Steering,
    sent: Vec<(Port, Vec<u8>)>,
    /// How many writes of queue pairs from now on one is to fail.
    failing_write: Option<u64>,
    faults: Vec<CommandFault>,
    executed: BTreeMap<u16, u64>,
    refusals: Vec<Refusal>,
    complaints: Vec<String>,
}

/// A command with which something is to go wrong, as a test wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandFault {
    /// Of this opcode.
    pub opcode: u16,
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
            port: register::PhysicalPort::default(),
            steering: tables_of(&profile),
            sent: Vec::new(),
            failing_write: None,
            faults: Vec::new(),
            executed: BTreeMap::new(),
            refusals: Vec::new(),
            complaints: Vec::new(),
        }
    }

    /// Carries out a command: the whole input mailbox in, the whole output mailbox out. A refusal is an output with status and
    /// syndrome, and is kept for [`Hca::refusals`]. Few commands write into memory: by a key, or completions of a queue that fails.
    pub fn execute(&mut self, memory: &dyn Memory, input: &[u8]) -> Vec<u8> {
        let opcode = command::opcode(input);
        *self.executed.entry(opcode).or_default() += 1;
        let refused = |trouble: &Trouble| matches!(trouble, Trouble::Refused { .. });
        if let Some(Trouble::Refused { status, syndrome }) = self.trouble(opcode, refused) {
            return command::refusal_bytes(status, syndrome);
        }
        let answer =
            if Steering::handles(opcode) { self.steer(memory, opcode, input) } else { self.dispatch(opcode, input) };
        if flush::may_fail_queues(opcode) {
            self.flush_failed_queues(memory);
        }
        answer.unwrap_or_else(|(status, syndrome, reason)| {
            if syndrome != steering::NO_ROOM {
                let described = command::find(opcode).map(|command| command.input.describe(input));
                let input = described.unwrap_or_else(|| hexadecimal(input));
                self.refusals.push(Refusal { command: command::name(opcode), input, status, syndrome, reason });
            }
            command::refusal_bytes(status, syndrome)
        })
    }

    /// A packet comes in from the wire, or from a vport: walked through the flow tables, and counted where it enters and leaves.
    /// What of it is for the driver itself is in the walk only; whoever serves the device hands it over. What goes to a virtual
    /// function that the host does not have is lost, and from such a one nothing comes.
    pub fn receive(&mut self, from: Port, frame: &[u8]) -> Walk {
        if !self.is_there(from) {
            self.complain(format!("a packet from {from}, whose function is not there"));
            return Walk::default();
        }
        self.walk(Origin { port: from, sqn: 0, metadata: 0 }, frame)
    }

    /// What the driver's own send queues have sent out of ports since the last time.
    pub fn take_sent(&mut self) -> Vec<(Port, Vec<u8>)> {
        std::mem::take(&mut self.sent)
    }

    /// What goes wrong with a command's delivery, which whoever delivers it has to ask for.
    pub fn delivery(&mut self, input: &[u8]) -> Option<Trouble> {
        self.trouble(command::opcode(input), |trouble| matches!(trouble, Trouble::Late(_) | Trouble::Lost))
    }

    fn trouble(&mut self, opcode: u16, wanted: impl Fn(&Trouble) -> bool) -> Option<Trouble> {
        let is_due = |fault: &&mut CommandFault| fault.opcode == opcode && fault.times > 0 && wanted(&fault.trouble);
        let fault = self.faults.iter_mut().find(is_due)?;
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
        left
    }

    /// As after a reset of the function: nothing is left of what the driver did, except the record of it. The host's functions
    /// stay.
    pub fn reset(&mut self) {
        let fresh = Self::new(self.profile);
        let former = std::mem::replace(self, fresh);
        self.host_vfs = former.host_vfs;
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

    fn walk(&mut self, origin: Origin, frame: &[u8]) -> Walk {
        let mut walk = self.steering.transmit(origin, frame);
        walk.sent.retain(|(to, _)| self.is_there(*to));
        self.count(origin.port, frame, vport::Way::In);
        for (to, frame) in &walk.sent {
            self.count(*to, frame, vport::Way::Out);
        }
        walk
    }

    /// Whether there is somebody at a port.
    fn is_there(&self, port: Port) -> bool {
        match port {
            Port::Vport(number) => number <= self.host_vfs || number > self.profile.host_total_vfs,
            Port::Wire => true,
        }
    }

    fn steer(&mut self, memory: &dyn Memory, opcode: u16, input: &[u8]) -> Result<Vec<u8>, (u8, u32, String)> {
        if self.stage < Stage::Initialized {
            let failure = too_early(self.stage);
            return Err((failure.status as u8, failure.syndrome, failure.reason));
        }
        let bad_key = |reason| (Status::BadParameter as u8, 0x070a, reason);
        let dump = Dump::wanted(opcode, input);
        if let Some(Dump { key, address, bytes }) = dump {
            // Before counters are cleared.
            self.check_key((key, address), bytes, Use::LocalWrite).map_err(bad_key)?;
        }
        let mut output = self
            .steering
            .command(opcode, command::uid(input), input)
            .map_err(|failure| (failure.status, failure.syndrome, failure.reason))?;
        if let Some(Dump { key, address, .. }) = dump {
            let counters = output.split_off(command::layouts::output::LAYOUT.length);
            self.write_by_key(memory, (key, address), Use::LocalWrite, &counters)
                .map_err(|failed| bad_key(failed.reason))?;
        }
        Ok(output)
    }

    fn dispatch(&mut self, opcode: u16, input: &[u8]) -> Result<Vec<u8>, (u8, u32, String)> {
        self.modelled(opcode, input)
            .map(command::Output::into_bytes)
            .map_err(|failure| (failure.status as u8, failure.syndrome, failure.reason))
    }

    fn modelled(&mut self, opcode: u16, input: &[u8]) -> command::Answer {
        let Some(command) = command::find(opcode) else {
            return Err(Failure::new(Status::BadOperation, 0x0a01, "not modelled"));
        };
        if self.stage < command.from {
            return Err(too_early(self.stage));
        }
        (command.run)(self, &Input::new(command.input, input)?)
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

fn too_early(stage: Stage) -> Failure {
    Failure::new(Status::BadSystemState, 0x0a02, format!("the function is {stage:?}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let words = bytes.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(crate) mod test;
