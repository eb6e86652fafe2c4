//! What can be asked over the control socket.

use std::collections::BTreeMap;
use std::fmt;

use super::peer::Peer;

/// A command of the control socket.
pub struct Command {
    /// Its name, such as `dpctl/dump-flows`.
    pub name: &'static str,
    /// Its arguments as `list-commands` shows them, such as `[-m] [type=..]`.
    pub usage: &'static str,
    /// The least number of arguments.
    pub min_args: usize,
    /// The greatest number of arguments.
    pub max_args: usize,
    /// What it does.
    pub run: Handler,
}

/// What a command does. It runs on a thread that may block.
///
/// An error that comes before the first output has left is the whole reply, and the client is told of a failure. After that the
/// connection is closed, so that half a dump is never taken for a whole one.
pub type Handler = Box<dyn Fn(&Request<'_>, &mut dyn Output) -> Result<(), String> + Send + Sync>;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The arguments, as many as the command takes.
    pub args: &'a [String],
    /// Who asks.
    pub peer: Peer,
}

/// Where a command writes its answer.
///
/// Writing waits while the client does not read, and fails once it is gone; a handler then returns.
pub trait Output: fmt::Write {
    /// Sends what was written up to now, for commands that go on for long.
    fn flush(&mut self) -> fmt::Result;

    /// Whether somebody still waits for the answer: false once the client is gone or the agent stops. A command that
    /// waits for something to happen asks now and then.
    fn is_wanted(&self) -> bool;

    /// Has the command answered later, by whoever stops the server, if it succeeds and has written nothing: for one that asks for the
    /// end of the agent and waits for it. See [`Deferred`](super::Deferred).
    fn defer(&mut self);
}

/// All text in one piece, for tests and for whoever wants the answer itself.
impl Output for String {
    fn flush(&mut self) -> fmt::Result {
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        true
    }

    fn defer(&mut self) {}
}

/// The commands that there are, two of which it brings along: `list-commands` and `version`.
pub struct Registry {
    version: String,
    commands: BTreeMap<&'static str, Command>,
}

impl Registry {
    /// A registry of the program that calls itself `version`, such as `sluiced (Sluice) 0.1.0`.
    pub fn new(version: impl Into<String>) -> Self {
        let mut registry = Self { version: version.into(), commands: BTreeMap::new() };
        for name in [LIST_COMMANDS, VERSION] {
            // Their work is done by the registry itself, in `run`.
            registry.register(Command { name, usage: "", min_args: 0, max_args: 0, run: Box::new(|_, _| Ok(())) });
        }
        registry
    }

    /// Adds a command. One of the same name goes.
    pub fn register(&mut self, command: Command) {
        self.commands.insert(command.name, command);
    }

    /// Runs a command.
    pub fn run(&self, name: &str, request: &Request<'_>, out: &mut dyn Output) -> Result<(), String> {
        let command = self.find(name, request.args.len())?;
        match name {
            LIST_COMMANDS => self.list(out).map_err(|_| CLIENT_GONE.to_owned()),
            VERSION => writeln!(out, "{}", self.version).map_err(|_| CLIENT_GONE.to_owned()),
            _ => (command.run)(request, out),
        }
    }

    /// The command of this name, if it takes so many arguments.
    pub(super) fn find(&self, name: &str, arguments: usize) -> Result<&Command, String> {
        // These sentences are Open vSwitch's, to the letter.
        let Some(command) = self.commands.get(name) else {
            return Err(format!(
                "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
            ));
        };
        if arguments < command.min_args {
            return Err(format!("\"{name}\" command requires at least {} arguments", command.min_args));
        }
        if arguments > command.max_args {
            return Err(format!("\"{name}\" command takes at most {} arguments", command.max_args));
        }
        Ok(command)
    }

    fn list(&self, out: &mut dyn Output) -> fmt::Result {
        writeln!(out, "The available commands are:")?;
        for command in self.commands.values() {
            writeln!(out, "  {:<23} {}", command.name, command.usage)?;
        }
        Ok(())
    }
}

const LIST_COMMANDS: &str = "list-commands";
const VERSION: &str = "version";
const CLIENT_GONE: &str = "the client is gone";
