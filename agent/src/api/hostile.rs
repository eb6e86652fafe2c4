//! Whatever bytes come as a message, reading them ends in a flow or in a reason.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use sluice_api::{FieldView, v1};
use sluice_flow::port::PortMap;
use sluice_flow::ufid::Seed;
use sluice_flow::{MaskedKey, Origin};

use super::fields::write_fields;
use super::reader::{Filter, FlowReader, read_match, read_name};

const KEY: &str = "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.0/255.0.0.0,proto=17,frag=no),udp(dst=53)";

/// A flow in both forms, as bytes of a message.
fn messages() -> Vec<Vec<u8>> {
    let matching = sluice_flow::text::parse_key(KEY, &()).unwrap().matching;
    let forms = [
        v1::r#match::Form::Text(KEY.to_owned()),
        v1::r#match::Form::Fields(write_fields(&MaskedKey::new(&matching)).unwrap()),
    ];
    let encode = |form| {
        prost::Message::encode_to_vec(&v1::Flow {
            ufid: "12345678-1234-1234-1234-123456789abc".to_owned(),
            r#match: Some(v1::Match { form: Some(form) }),
            actions: "set(eth(dst=02:00:00:00:00:02)),2".to_owned(),
            priority: 3,
            idle_timeout: Some(prost_types::Duration { seconds: 10, nanos: 0 }),
            ..v1::Flow::default()
        })
    };
    forms.map(encode).to_vec()
}

/// Bytes of a message of which some are others, some are left out, and the end may be missing.
fn changed() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<Index>(), any::<u8>(), any::<bool>());
    (0..2_usize, vec(change, 0..6), any::<Index>(), any::<bool>()).prop_map(|(which, changes, end, is_cut)| {
        let mut bytes = messages().swap_remove(which);
        for (place, byte, is_removed) in changes {
            let place = place.index(bytes.len());
            if is_removed { _ = bytes.remove(place) } else { bytes[place] = byte }
        }
        if is_cut {
            bytes.truncate(end.index(bytes.len() + 1));
        }
        bytes
    })
}

fn read<M: prost::Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}

/// A field that was read by the library.
fn view(v1::MatchField { field, value, mask }: &v1::MatchField) -> FieldView<'_> {
    FieldView { field: *field, value, mask }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_message_is_more_than_a_reason(bytes in changed()) {
        let (ports, seed) = (PortMap::default(), Seed([0; 16]));
        let mut reader = FlowReader::new(&ports, &seed, Origin::Controller("hostile".parse().unwrap()));
        let flow = read::<v1::Flow>(&bytes);
        let form = flow.as_ref().and_then(|flow| flow.r#match.as_ref()?.form.as_ref());
        if let Some(v1::r#match::Form::Fields(fields)) = form {
            let views: Result<Vec<_>, _> = fields.iter().collect();
            let read = fields.read();
            prop_assert_eq!(views.ok(), read.as_ref().ok().map(|message| message.fields.iter().map(view).collect()));
        }
        if let Some(flow) = flow && let Ok(flow) = reader.read(&flow) {
            let fields = write_fields(&flow.matching());
            prop_assert!(fields.is_some(), "what was read can be written");
        }
        // The same bytes as other messages, whose fields have the same numbers.
        let _ = read::<v1::Match>(&bytes).map(|matching| read_match(&matching, &ports));
        let _ = read::<v1::FlowName>(&bytes).map(|name| read_name(Some(&name), &ports));
        let _ = read::<v1::Filter>(&bytes).map(|filter| Filter::read(Some(&filter), &ports));
    }
}
