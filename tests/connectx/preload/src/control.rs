//! What is to go wrong with a device, for whoever has started a program by `connectx run --control SOCKET`.
//!
//! Each line that comes in is a command, and is answered by a line: `ok` with what was asked for, or `error: ` with the reason.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::str::FromStr;
use std::thread::Builder;
use std::time::Duration;

use nix::errno::Errno;
use sluice_connectx::hca::{CommandFault, Trouble};
use sluice_connectx_uverbs::Device;

use crate::bus::unplug;

/// Opens the socket.
///
/// # Errors
/// If it cannot be bound.
pub(crate) fn open(socket: &Path, device: &Device) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    let device = device.clone();
    Builder::new().name("control".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever goes without reading the answer does not want it.
            let _ = serve(&stream, &device);
        }
    })?;
    Ok(())
}

fn serve(stream: &UnixStream, device: &Device) -> io::Result<()> {
    for line in BufReader::new(stream).lines() {
        let answer = match carry_out(&line?, device) {
            Ok(text) if text.is_empty() => "ok".to_owned(),
            Ok(text) => format!("ok {text}"),
            Err(reason) => format!("error: {reason}"),
        };
        writeln!(&*stream, "{answer}")?;
    }
    Ok(())
}

fn carry_out(line: &str, device: &Device) -> Result<String, String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (command, arguments) = words.split_first().ok_or("no command")?;
    let failed = |errno: Errno| errno.to_string();
    let inject = |fault| device.with(|hca| hca.inject(fault));
    match (*command, arguments) {
        ("refuse", [opcode, after, times, status, syndrome]) => {
            let (after, times) = (number(after, "number of commands")?, number(times, "number of times")?);
            let (status, syndrome) = (narrow(status, "status")?, hexadecimal(syndrome, "syndrome")?);
            let opcode = narrow(opcode, "opcode")?;
            inject(CommandFault { opcode, after, times, trouble: Trouble::Refused { status, syndrome } });
        }
        ("delay", [opcode, times, milliseconds]) => {
            let (opcode, times) = (narrow(opcode, "opcode")?, number(times, "number of times")?);
            let late = Duration::from_millis(number(milliseconds, "number of milliseconds")?);
            inject(CommandFault { opcode, after: 0, times, trouble: Trouble::Late(late) });
        }
        ("fail-write", [which]) => {
            let which = number(which, "number of a write")?;
            device.with(|hca| hca.fail_write(which));
        }
        ("stall", []) => device.hold(),
        ("resume", []) => device.release(),
        ("pass", [nanoseconds]) => {
            let time = Duration::from_nanos(number(nanoseconds, "number of nanoseconds")?);
            device.with(|hca| hca.pass_time(time));
        }
        ("fatal", []) => device.die().map_err(failed)?,
        ("vanish", []) => unplug(device).map_err(failed)?,
        ("commands", []) => {
            let all = device.with(|hca| hca.all_executed().collect::<Vec<_>>()).into_iter();
            return Ok(joined(all.map(|(opcode, times)| format!("{opcode:#x}={times}"))));
        }
        ("rnr", []) => return Ok(device.with(|hca| hca.rnr().to_string())),
        ("counters", []) => {
            let all = device.with(|hca| hca.steering().counted()).into_iter();
            return Ok(joined(all.map(|(id, count)| format!("{id:#x}={}/{}", count.packets, count.bytes))));
        }
        ("left", []) => {
            let all = device.census().into_iter();
            return Ok(joined(all.map(|(kind, count)| format!("{}={count}", kind.replace(' ', "-")))));
        }
        (command, arguments) => return Err(format!("there is no command {command} of {} words", arguments.len())),
    }
    Ok(String::new())
}

fn number<N: FromStr>(word: &str, what: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("{word} is no {what}"))
}

/// With or without `0x`.
fn hexadecimal(word: &str, what: &str) -> Result<u32, String> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    u32::from_str_radix(digits, 16).map_err(|_| format!("{word} is no {what}"))
}

fn narrow<N: TryFrom<u32>>(word: &str, what: &str) -> Result<N, String> {
    N::try_from(hexadecimal(word, what)?).map_err(|_| format!("{word} is no {what}"))
}

fn joined(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" ")
}
