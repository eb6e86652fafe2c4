//! The unmodified mlx5_core of Debian's kernel on the device, with the stock devlink and tc, in the virtual machine of
//! `tests/lab/connectx`; and packets at the wire and at the host's functions, which are in this process.
//!
//! It proves that the kernel's driver accepts the device, and that packets go where tc said. It says nothing of hardware.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_connectx::hca::Hca;
use sluice_connectx::pci::Slot;
use sluice_connectx::profile::{BLUEFIELD_2, VPORT_ECPF};
use sluice_connectx::steering::{Port, Walk};

const PATIENCE: Duration = Duration::from_secs(900);
const VF0: Port = Port::Vport(1);
const VF1: Port = Port::Vport(2);
const HOST_PF: Port = Port::Vport(0);
/// The driver's own function, to which goes what no rule wants.
const MANAGER: Port = Port::Vport(VPORT_ECPF);

fn main() -> ExitCode {
    // As the harness of other tests is asked.
    if std::env::args().any(|argument| argument == "--list") {
        println!("the_kernels_own_driver_takes_the_device: test");
        return ExitCode::SUCCESS;
    }
    let start = Instant::now();
    let folder = std::env::temp_dir().join(format!("sluice-connectx-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder can be made");
    let outcome = std::panic::catch_unwind(|| the_kernels_own_driver_takes_the_device(&folder));
    if outcome.is_ok() {
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    } else {
        eprintln!("what the guest said is in {}", folder.display());
    }
    let (word, passed) = if outcome.is_ok() { ("ok", 1) } else { ("FAILED", 0) };
    println!("test the_kernels_own_driver_takes_the_device ... {word}");
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        1 - passed,
        start.elapsed().as_secs_f64()
    );
    ExitCode::from(1 - passed)
}

fn the_kernels_own_driver_takes_the_device(folder: &Path) {
    let hca = Arc::new(Mutex::new(Hca::new(BLUEFIELD_2)));
    let mut guest = Guest::boot(folder, &hca);

    guest.wait_for("ready");
    assert!(guest.said("eswitch").contains("mode switchdev"), "{}", guest.said("eswitch"));
    let ports = guest.said("ports");
    for flavour in ["flavour physical port 0", "flavour pcipf controller 1 pfnum 0", "vfnum 0", "vfnum 1"] {
        assert!(ports.contains(flavour), "no {flavour} in\n{ports}");
    }
    let filters = guest.said("filters");
    let rules = filters.matches("skip_sw").count();
    assert_eq!((rules, filters.matches("in_hw in_hw_count 1").count()), (6, 6), "{filters}");

    packets_go_where_tc_said(&hca);

    // Counters are those of the packets: five at one rule, two at another.
    guest.wait_for("deleted");
    let counters = guest.said("counters_vf0");
    assert!(counters.contains(&format!("Sent hardware {} bytes 5 pkt", 5 * DNS_QUERY)), "{counters}");
    assert!(counters.contains(&format!("Sent hardware {} bytes 2 pkt", 2 * DNS_QUERY)), "{counters}");
    let walk = hca.lock().receive(VF0, &udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 53));
    assert!(walk.sent.iter().all(|(port, _)| *port == MANAGER), "a rule that was deleted still sends:\n{walk}");

    guest.end();
    let uplink = guest.said("uplink");
    assert!(uplink.contains("UP"), "{uplink}");
    let hca = hca.lock();
    let refusals: Vec<String> = hca.refusals().iter().map(ToString::to_string).collect();
    assert_eq!(refusals, Vec::<String>::new(), "the driver was refused");
    assert_eq!(hca.complaints(), Vec::<String>::new(), "the driver did what the device does not expect");
    assert_eq!(hca.left(), Vec::<String>::new(), "the driver left something");
}

fn packets_go_where_tc_said(hca: &Arc<Mutex<Hca>>) {
    let receive = |from, frame: &[u8]| hca.lock().receive(from, frame);
    let query = udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 53);
    for _ in 0..5 {
        assert_sent(&receive(VF0, &query), &[(Port::Wire, &query)]);
    }
    let refused = udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 54);
    for _ in 0..2 {
        assert_sent(&receive(VF0, &refused), &[]);
    }
    // Of another function, or of another address, it is no rule's.
    assert_sent(&receive(VF1, &query), &[(MANAGER, &query)]);
    let stranger = udp([10, 0, 0, 9], [10, 9, 9, 9], 1000, 53);
    assert_sent(&receive(VF0, &stranger), &[(MANAGER, &stranger)]);

    let answer = |to| udp([10, 9, 9, 9], [10, 0, 0, to], 53, 1000);
    assert_sent(&receive(Port::Wire, &answer(1)), &[(VF0, &answer(1))]);
    assert_sent(&receive(Port::Wire, &answer(2)), &[(VF1, &tagged(&answer(2), 100))]);
    assert_sent(&receive(Port::Wire, &answer(3)), &[(HOST_PF, &answer(3)), (VF1, &answer(3))]);

    let tcp = tcp_v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    assert_sent(&receive(HOST_PF, &tcp), &[(VF1, &tcp)]);
    let elsewhere = tcp_v6([0xfe; 16]);
    assert_sent(&receive(HOST_PF, &elsewhere), &[(MANAGER, &elsewhere)]);
}

fn assert_sent(walk: &Walk, expected: &[(Port, &[u8])]) {
    let sent: BTreeSet<(Port, &[u8])> = walk.sent.iter().map(|(port, frame)| (*port, frame.as_slice())).collect();
    assert_eq!(sent, expected.iter().copied().collect(), "{walk}");
    assert_eq!(walk.sent.len(), expected.len(), "{walk}");
}

/// Bytes of the frames of [`udp`].
const DNS_QUERY: usize = 60;

fn udp(source: [u8; 4], destination: [u8; 4], source_port: u16, destination_port: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&source);
    frame.extend_from_slice(&destination);
    frame.extend_from_slice(&source_port.to_be_bytes());
    frame.extend_from_slice(&destination_port.to_be_bytes());
    frame.extend_from_slice(&[0, 26, 0, 0]);
    frame.resize(DNS_QUERY, 0x5a);
    frame
}

fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let tag = [0x81, 0x00, vlan.to_be_bytes()[0], vlan.to_be_bytes()[1]];
    [&frame[..12], &tag, &frame[12..]].concat()
}

fn tcp_v6(destination: [u8; 16]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    frame.extend_from_slice(&[0x60, 0, 0, 0, 0, 20, 6, 64]);
    frame.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend_from_slice(&destination);
    frame.extend_from_slice(&[0x03, 0xe8, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

/// The virtual machine, with the device in it.
struct Guest {
    folder: PathBuf,
    machine: Child,
    deadline: Instant,
}

impl Guest {
    fn boot(folder: &Path, hca: &Arc<Mutex<Hca>>) -> Self {
        let socket = folder.join("socket");
        let slot = Slot::new(&socket).expect("a socket can be made");
        let served = Arc::clone(hca);
        thread::spawn(move || slot.serve(&served, &mut |line| eprintln!("connectx: {line}")));
        let lab = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/connectx");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mlx5_core/guest.sh");
        let machine = Command::new(lab)
            .env("LAB_TIMEOUT", PATIENCE.as_secs().to_string())
            .arg("--socket")
            .arg(&socket)
            .arg("--out")
            .arg(folder)
            .args(["--", "bash", script])
            .spawn()
            .expect("tests/lab/connectx can be run");
        Self { folder: folder.to_owned(), machine, deadline: Instant::now() + PATIENCE }
    }

    /// Waits until the guest has written a file.
    fn wait_for(&mut self, name: &str) {
        while !self.folder.join(name).exists() {
            if let Some(status) = self.machine.try_wait().expect("a child can be waited for") {
                panic!("the guest ended with {status} before it said {name}");
            }
            assert!(Instant::now() < self.deadline, "the guest has not said {name} in time");
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn end(&mut self) {
        let status = self.machine.wait().expect("a child can be waited for");
        assert!(status.success(), "the guest ended with {status}");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Still there when a check has failed. The script takes the machine with it.
        if let Ok(None) = self.machine.try_wait() {
            let _ = Command::new("kill").arg(self.machine.id().to_string()).status();
            let _ = self.machine.wait();
        }
    }
}
