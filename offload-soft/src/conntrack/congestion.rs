//! What the marks of congestion (RFC 3168) on the fragments of a packet make of the packet.

/// The bits of the type of service and of the traffic class that are the mark.
const MARK: u8 = 3;

/// Which marks fragments have.
#[derive(Default)]
pub(super) struct Congestion([bool; 4]);

impl Congestion {
    /// Notes the mark in a fragment's type of service or traffic class.
    pub(super) fn note(&mut self, class: u8) {
        self.0[usize::from(class & MARK)] = true;
    }

    /// The bits that the packet gets besides those of its first fragment; `None` if these are no fragments of one packet
    /// (RFC 3168, 5.3; `ip_frag_ecn_table`).
    pub(super) fn joint(&self) -> Option<u8> {
        let [is_incapable, is_capable_1, is_capable_0, is_experienced] = self.0;
        let is_capable = is_capable_1 || is_capable_0 || is_experienced;
        if is_incapable && is_capable {
            return None;
        }
        Some(if is_experienced { MARK } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congestion_that_one_fragment_has_met_is_the_packets_and_capability_is_of_all_or_none() {
        let joint = |marks: &[u8]| {
            let mut congestion = Congestion::default();
            marks.iter().for_each(|mark| congestion.note(0xb8 | mark));
            congestion.joint()
        };
        for marks in [&[0][..], &[0, 0], &[1], &[2, 2], &[1, 2]] {
            assert_eq!(joint(marks), Some(0), "{marks:?}");
        }
        for marks in [&[3][..], &[1, 3], &[3, 2], &[1, 2, 3]] {
            assert_eq!(joint(marks), Some(3), "{marks:?}");
        }
        for marks in [&[0, 1][..], &[2, 0], &[3, 0], &[0, 1, 2, 3]] {
            assert_eq!(joint(marks), None, "{marks:?}");
        }
    }
}
