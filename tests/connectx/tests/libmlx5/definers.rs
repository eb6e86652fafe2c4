//! Match definers: entries that match 32 bytes at once, which libmlx5 prefers where all fields are in one of them, and tables of
//! them whose size a program sets.

use sluice_connectx::profile::{BLUEFIELD_2, CONNECTX_5, CONNECTX_6_DX, CONNECTX_7, Profile};
use sluice_connectx::steering::Port;
use sluice_connectx_uverbs::Plugged;
use sluice_libmlx5::dv::{Layout, Match, Object};

use crate::fields::{Case, check_those, layer_2, layer_3, layer_4, tunnels};
use crate::packet::{Packet, TCP, UDP};
use crate::rig::field::{self as f, Field};
use crate::rig::{comes_out, datagram, exactly, five_tuple, play, play_in_switch, value, walk};
use crate::samples::{carried, gtpu, headers, mpls};

fn all_cases() -> Vec<Case> {
    [layer_2(), layer_3(), layer_4(), tunnels(), mpls(), gtpu(), headers(), carried()].into_iter().flatten().collect()
}

fn formats(plugged: &Plugged) -> Vec<u16> {
    plugged.device().with(|hca| hca.steering().formats_of_definers())
}

#[test]
fn each() {
    for formats_there in [1 << 0, 1 << 2, 1 << 6 | 1 << 26, 1 << 16, 1 << 22, 1 << 24, 1 << 25, 1 << 28, 1 << 33] {
        let profile = Profile { match_definers: formats_there, ..CONNECTX_7 };
        let names = check_those(profile, all_cases(), |plugged| !formats(plugged).is_empty());
        println!("XX {formats_there:#x} {names:?}");
    }
}
