//! Both ends of every packet, for whoever has started a program by `connectx run --ports FOLDER`: Unix sockets for datagrams, of which
//! each is a frame.
//!
//! What is sent to `wire` or `vport-N` in the folder comes into the device there. What leaves it by that port is sent to `wire.out` or
//! `vport-N.out`, if somebody has bound it, and is lost otherwise, as on a wire without a peer.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use sluice_connectx::steering::Port;
use sluice_connectx_uverbs::Device;

/// More than any frame has.
const MOST: usize = 1 << 16;
/// How often it looks for what the program has sent.
const PERIOD: Duration = Duration::from_millis(1);

/// Opens the ports of a device.
///
/// # Errors
/// If a socket cannot be bound in the folder.
pub(crate) fn open(folder: &Path, device: &Device) -> io::Result<()> {
    let folder: Arc<Path> = Arc::from(folder);
    let vports = device.with(|hca| hca.profile().vports());
    let own = device.with(|hca| hca.profile().own_vport());
    for vport in vports.into_iter().filter(|vport| *vport != own) {
        let port = Port::of_vport(vport);
        let socket = UnixDatagram::bind(folder.join(name(port)))?;
        let (folder, device) = (Arc::clone(&folder), device.clone());
        Builder::new().name(name(port)).spawn(move || take(&socket, port, &device, &folder))?;
    }
    let device = device.clone();
    Builder::new().name("sent".to_owned()).spawn(move || give(&device, &folder))?;
    Ok(())
}

fn name(port: Port) -> String {
    match port {
        Port::Wire => "wire".to_owned(),
        Port::Vport(number) => format!("vport-{number}"),
    }
}

/// Takes frames that come in, and passes on what becomes of them.
fn take(socket: &UnixDatagram, port: Port, device: &Device, folder: &Path) {
    let mut frame = vec![0; MOST];
    while let Ok(length) = socket.recv(&mut frame) {
        let walk = device.receive(port, &frame[..length]);
        pass_on(walk.sent, folder);
    }
}

/// Passes on what the program sends.
fn give(device: &Device, folder: &Path) {
    loop {
        std::thread::sleep(PERIOD);
        pass_on(device.with(|hca| hca.take_sent()), folder);
    }
}

fn pass_on(sent: Vec<(Port, Vec<u8>)>, folder: &Path) {
    let Ok(socket) = UnixDatagram::unbound() else { return };
    for (port, frame) in sent {
        let out: PathBuf = folder.join(format!("{}.out", name(port)));
        // Nobody is there: the frame is lost.
        let _ = socket.send_to(&frame, out);
    }
}
