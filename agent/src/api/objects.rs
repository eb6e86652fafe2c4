//! `Objects`: ports, meters and mirrors. Their rules are those of the control socket's words.

use sluice_api::v1;
use sluice_api::v1::objects_server::Objects;
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{PortKind, PortMap};
use sluice_flow::{MaskedKey, Port, PortNumber};
use sluice_objects::ObjectKind;
use tonic::{Request, Response, Status, async_trait};

use super::access::Access;
use super::errors::{InputError, call_failed};
use super::fields::write_fields;
use super::reader::read_match;
use super::{Api, Shared};

#[async_trait]
impl Objects for Shared {
    async fn list_ports(&self, request: Request<v1::ListPortsRequest>) -> Answer<v1::ListPortsResponse> {
        Access::of(&request).read()?;
        self.answer(|api| {
            let view = api.service.view();
            let (ports, counters) = (view.ports(), view.device_counters());
            let status = |port: &Port| v1::PortStatus {
                port: Some(write_port(port)),
                count: counters.port(port.number).map(|count| v1::PortCount {
                    rx_packets: count.rx_packets,
                    rx_bytes: count.rx_bytes,
                    tx_packets: count.tx_packets,
                    tx_bytes: count.tx_bytes,
                }),
                absent: view.is_absent(port.number),
            };
            Ok(v1::ListPortsResponse { ports: ports.iter().map(status).collect() })
        })
        .await
    }

    async fn add_port(&self, request: Request<v1::Port>) -> Answer<v1::Port> {
        Access::of(&request).objects()?;
        let port = request.into_inner();
        self.answer(move |api| put(api, read_port(&port, &api.service.view().ports())?).map(|port| write_port(&port)))
            .await
    }

    async fn delete_port(&self, request: Request<v1::DeletePortRequest>) -> Answer<v1::DeleteResponse> {
        Access::of(&request).objects()?;
        let number = PortNumber(request.into_inner().number);
        self.answer(move |api| remove::<Port>(api, &number)).await
    }

    async fn list_meters(&self, request: Request<v1::ListMetersRequest>) -> Answer<v1::ListMetersResponse> {
        Access::of(&request).read()?;
        let objects = self.0.service.view().objects();
        Ok(Response::new(v1::ListMetersResponse { meters: objects.meters().map(write_meter).collect() }))
    }

    async fn put_meter(&self, request: Request<v1::Meter>) -> Answer<v1::Meter> {
        Access::of(&request).objects()?;
        let meter = request.into_inner();
        self.answer(move |api| put(api, read_meter(&meter)?).map(|meter| write_meter(&meter))).await
    }

    async fn delete_meter(&self, request: Request<v1::DeleteMeterRequest>) -> Answer<v1::DeleteResponse> {
        Access::of(&request).objects()?;
        let id = MeterId(request.into_inner().id);
        self.answer(move |api| remove::<Meter>(api, &id)).await
    }

    async fn list_mirrors(&self, request: Request<v1::ListMirrorsRequest>) -> Answer<v1::ListMirrorsResponse> {
        Access::of(&request).read()?;
        let objects = self.0.service.view().objects();
        Ok(Response::new(v1::ListMirrorsResponse { mirrors: objects.mirrors().map(write_mirror).collect() }))
    }

    async fn put_mirror(&self, request: Request<v1::Mirror>) -> Answer<v1::Mirror> {
        Access::of(&request).objects()?;
        let mirror = request.into_inner();
        self.answer(move |api| {
            let mirror = read_mirror(&mirror, &api.service.view().ports())?;
            put(api, mirror).map(|mirror| write_mirror(&mirror))
        })
        .await
    }

    async fn delete_mirror(&self, request: Request<v1::DeleteMirrorRequest>) -> Answer<v1::DeleteResponse> {
        Access::of(&request).objects()?;
        let name = request.into_inner().name;
        self.answer(move |api| remove::<Mirror>(api, &name)).await
    }
}

type Answer<T> = Result<Response<T>, Status>;

fn put<T: ObjectKind + Clone>(api: &Api, object: T) -> Result<T, Status> {
    // Proof that it survives a restart.
    let _ = api.service.put(object.clone()).map_err(|error| call_failed(&error))?.receipt();
    Ok(object)
}

fn remove<T: ObjectKind>(api: &Api, id: &T::Id) -> Result<v1::DeleteResponse, Status> {
    let _ = api.service.remove::<T>(id).map_err(|error| call_failed(&error))?.receipt();
    Ok(v1::DeleteResponse {})
}

fn read_port(port: &v1::Port, ports: &PortMap) -> Result<Port, InputError> {
    let v1::Port { number, name, kind, udp_port, underlay } = port;
    let kind = if kind.is_empty() { "physical" } else { kind };
    let is_tunnel = !["physical", "representor", "internal", "mirror"].contains(&kind);
    let details = (is_tunnel || *udp_port != 0).then(|| (*udp_port != 0).then(|| udp_port.to_string()));
    let details = details.flatten().into_iter().chain((is_tunnel || *underlay != 0).then(|| underlay.to_string()));
    let words: Vec<_> = [number.to_string(), name.clone(), kind.to_owned()].into_iter().chain(details).collect();
    Port::read(&words, ports).map_err(|reason| InputError::new("port", reason))
}

fn write_port(Port { number, name, kind }: &Port) -> v1::Port {
    let (udp_port, underlay) = match kind {
        PortKind::Tunnel(tunnel) => (tunnel.udp_port.unwrap_or_default().into(), tunnel.underlay.0),
        _ => (0, 0),
    };
    v1::Port { number: number.0, name: name.to_string(), kind: kind.name().to_owned(), udp_port, underlay }
}

fn read_meter(meter: &v1::Meter) -> Result<Meter, InputError> {
    let unit = match meter.unit() {
        v1::MeterUnit::Kbps => MeterUnit::Kilobits,
        v1::MeterUnit::Pps => MeterUnit::Packets,
        v1::MeterUnit::Unspecified => return Err(InputError::new("unit", "it is missing")),
    };
    let bands = meter.bands.iter().map(|band| MeterBand { rate: band.rate, burst: band.burst }).collect();
    Ok(Meter { id: MeterId(meter.id), unit, bands })
}

fn write_meter(meter: &Meter) -> v1::Meter {
    let unit = match meter.unit {
        MeterUnit::Kilobits => v1::MeterUnit::Kbps,
        MeterUnit::Packets => v1::MeterUnit::Pps,
    };
    let bands = meter.bands.iter().map(|band| v1::MeterBand { rate: band.rate, burst: band.burst }).collect();
    v1::Meter { id: meter.id.0, unit: unit.into(), bands }
}

fn read_mirror(mirror: &v1::Mirror, ports: &PortMap) -> Result<Mirror, InputError> {
    let matching = mirror.r#match.as_ref().ok_or_else(|| InputError::new("match", "it is missing"))?;
    let copies = mirror.ports.iter().map(|port| PortNumber(*port)).collect();
    let mirror = Mirror::new(mirror.name.as_str(), read_match(matching, ports)?, copies);
    let mirror = mirror.map_err(|reason| InputError::new("mirror", reason))?;
    if mirror.is_reserved() {
        let reason = format!("the name of a mirror does not begin with \"{}\"", Mirror::RESERVED);
        return Err(InputError::new("name", reason));
    }
    Ok(mirror)
}

/// One that was made by a request has one match.
fn write_mirror(mirror: &Mirror) -> v1::Mirror {
    let fields = mirror.matches.first().and_then(|matching| write_fields(&MaskedKey::new(matching)));
    v1::Mirror {
        name: mirror.name.clone(),
        r#match: fields.map(|fields| v1::Match { form: Some(v1::r#match::Form::Fields(fields)) }),
        ports: mirror.copies.iter().map(|port| port.0).collect(),
    }
}
