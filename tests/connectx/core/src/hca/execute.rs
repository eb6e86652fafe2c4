//! Commands: looked up, checked, carried out and answered.

use super::key::Use;
use super::state::{Hca, Stage, Trouble};
use super::table;
use crate::command::{Failure, Input, Refusal, Status};
use crate::memory::Memory;
use crate::steering::{Dump, Steering};
use crate::{command, steering};

impl Hca {
    /// Carries out a command: the whole input mailbox in, the whole output mailbox out. A refusal is an output with status and
    /// syndrome, and is kept for [`Hca::refusals`]. Few commands write into memory: by a key, or completions of a queue that fails.
    pub fn execute(&mut self, memory: &dyn Memory, input: &[u8]) -> Vec<u8> {
        let opcode = command::opcode(input);
        *self.executed.entry(opcode).or_default() += 1;
        let refused = |trouble: &Trouble| matches!(trouble, Trouble::Refused { .. });
        if let Some(Trouble::Refused { status, syndrome }) = self.trouble(opcode, refused) {
            return command::refusal_bytes(status, syndrome);
        }
        if let Some(answer) = self.answer_of_dead(opcode) {
            return answer;
        }
        let answer =
            if Steering::handles(opcode) { self.steer(memory, opcode, input) } else { self.dispatch(opcode, input) };
        if may_fail_queues(opcode) {
            self.flush_failed_queues(memory);
        }
        answer.unwrap_or_else(|(status, syndrome, reason)| {
            if syndrome != steering::NO_ROOM {
                let described = table::find(opcode).map(|command| command.input.describe(input));
                let input = described.unwrap_or_else(|| hexadecimal(input));
                self.refusals.push(Refusal { command: table::name(opcode), input, status, syndrome, reason });
            }
            command::refusal_bytes(status, syndrome)
        })
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
        let Some(command) = table::find(opcode) else {
            return Err(Failure::new(Status::BadOperation, 0x0a01, "not modelled"));
        };
        if self.stage < command.from {
            return Err(too_early(self.stage));
        }
        (command.run)(self, &Input::new(command.input, input)?)
    }
}

fn too_early(stage: Stage) -> Failure {
    Failure::new(Status::BadSystemState, 0x0a02, format!("the function is {stage:?}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let words = bytes.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a command may take queues into error.
fn may_fail_queues(opcode: u16) -> bool {
    const MODIFY_SQ: u16 = 0x905;
    const MODIFY_RQ: u16 = 0x909;
    matches!(opcode, MODIFY_SQ | MODIFY_RQ)
}
