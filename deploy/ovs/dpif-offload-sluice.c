/*
 * Hands flows of Open vSwitch 4.0 to Sluice, and keeps those that Sluice does not take in Open vSwitch's own datapath.
 *
 * For who builds Open vSwitch: this file goes to lib/, and dpif-offload-sluice.patch beside it names it in three places. It is used where
 * other_config:hw-offload is true and other_config:hw-offload-priority begins with "sluice"; other_config:sluice-run-dir is the agent's
 * run_dir, /run/sluice by default. The agent has `handed_over = true` in [source.ovs].
 *
 * A flow that is put is sent to the agent, and that is all that the caller waits for. If the agent refuses it, the next call of operate() puts
 * it into the kernel's datapath, and for a minute the agent is not asked for it again. What the agent counts is in the memory of
 * docs/feedback.md. When the agent goes, all flows go to the kernel's datapath; when there is one again, they move to it. When ovs-vswitchd goes,
 * rules stay until the next one is at work. There is no thread: whoever calls looks at the socket.
 *
 * A packet that the kernel's datapath recirculates stays there. So all flows of a recirculation id that a flow of the kernel leads to are the
 * kernel's as well; what misses there in the device goes on in the kernel, if the kernel can (CONFIG_NET_TC_SKB_EXT).
 */

#include <config.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "dpif-offload.h"
#include "dpif-offload-provider.h"
#include "hash.h"
#include "netdev-provider.h"
#include "netdev-vport.h"
#include "netlink.h"
#include "odp-util.h"
#include "timeval.h"
#include "util.h"

#include "openvswitch/dynamic-string.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"
#include "openvswitch/match.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/vlog.h"

VLOG_DEFINE_THIS_MODULE(dpif_offload_sluice);

/* Messages are those of the kernel's families ovs_datapath, ovs_vport, ovs_flow and ovs_meter, under these numbers. */
enum { FAMILY_DATAPATH = 0x10, FAMILY_VPORT, FAMILY_FLOW, FAMILY_METER };

/* How long it takes until the agent is looked for again; and until a refused flow is sent again, twice as long each time up to the second of these;
 * in ms. */
#define AGAIN 1000
#define REFUSED_FOR 60000
#define REFUSED_AT_MOST 600000
/* How often all flows of the datapath are looked through for such, at the most; in ms. */
#define LOOK_EVERY 10000
/* How many rounds of the revalidators a flow that moves waits for, at the most, until the datapath counts nothing for it any more. */
#define REST_AT_MOST 10
/* How many flows are remembered by name: as many as a datapath has. */
#define MAX_NAMES 200000
/* How long the end of a flow may wait for room on its way to the agent; in seconds. */
#define PATIENCE 1
/* Bytes of what is sent and not received yet. */
#define QUEUE (8 << 20)
/* With so many recirculation ids that the kernel's flows lead to, all are the kernel's. */
#define MAX_CHAINS 65536
#define DUMP_BATCH 50
/* The datapath of the kernel. */
#define TYPE "system"

/* A flow that the agent has, or may have. */
struct sluice_flow {
    struct hmap_node node;       /* In 'flows', by UFID. */
    struct hmap_node match_node; /* In 'matches', unless its match is one that Open vSwitch cannot read. */
    struct ovs_list orphan_node; /* In 'orphans' once the agent has it no more. */
    ovs_u128 ufid;
    uint32_t chain;              /* Its recirculation id. */
    struct ofpbuf *key, *mask, *actions;
    uint64_t over;               /* The life that was counted under its UFID when it was made, of an earlier flow; 0 for none. */
    struct dpif_flow_stats counted; /* What was counted when it was last looked at. */
    struct dpif_flow_stats zero; /* What was counted when the counters were last asked to begin anew. */
    unsigned long long int shown_in; /* The round of the revalidators in which they were last shown it; 0 for none. */
    /* What the datapath, which had it before, has counted after the revalidators were shown it there for the last time; and when it has seen its
     * last packet. */
    struct dpif_flow_stats moved;
    /* While it moves. */
    bool is_sent, is_refused;
    unsigned long long int ruled_in;   /* The round of the revalidators in which it had a rule; 0 without one. */
    unsigned long long int rests_from; /* The round from which on the datapath has counted nothing for it; 0 until it has a rule. */
    struct dpif_flow_stats resting;    /* What it had counted then. */
};

/* A flow that is remembered by its name, which is its UFID. */
struct sluice_name {
    struct hmap_node node;
    ovs_u128 ufid;
    /* When a refused one may be sent again, and how long after it was refused that is. */
    long long int until, wait;
    struct dpif_flow_stats counted; /* What was counted for a double while the agent had it. */
};

/* A recirculation id that a flow of the kernel's datapath leads to. */
struct sluice_chain {
    struct hmap_node node; /* In 'chains', by its number. */
    uint32_t number;
};

/* What is counted for a meter, in lives that an agent may end and begin anew. */
struct sluice_count {
    uint64_t over; /* The life that was counted under its number when it was made, of an earlier meter; 0 for none. */
    uint64_t life; /* The one that was counted when it was last looked at; 0 for none. */
    struct dpif_flow_stats now;    /* What was counted in that one. */
    struct dpif_flow_stats before; /* What was counted in those before it. */
};

/* A meter. The kernel's datapath has it as well, and limits by it what it forwards itself. */
struct sluice_meter {
    struct hmap_node node; /* In 'meters', by its number. */
    uint32_t id;
    bool is_kbps;
    uint32_t rate, burst;
    struct sluice_count counts[2]; /* What has reached it, and what it has dropped. */
};

/* The memory of docs/feedback.md. */
struct sluice_memory {
    int socket;
    const uint64_t *words;
    size_t length;
    /* Of its header, as they were when it was looked at. */
    uint64_t slots, epoch;
};

struct sluice_offload {
    struct dpif_offload offload;
    uint32_t features; /* OVS_DP_F_* of the datapath. */
    char *datapath;
    atomic_bool is_enabled;

    struct ovs_mutex mutex; /* Protects all below. */
    char *run_dir;
    int socket;
    bool is_greeted; /* The agent has been told of the datapath. */
    long long int again;
    struct hmap flows;
    struct hmap matches; /* The same by what they match. */
    struct hmap moving; /* Flows that the datapath has until the agent has a rule for them. */
    bool must_look;     /* For such flows, because the agent may take some that it did not take before. */
    bool is_looking;    /* So what changes in the datapath is not moved. */
    bool has_port;      /* A port has come meanwhile, for want of which flows may have been refused. */
    bool is_flushed;    /* What the datapath had has been deleted meanwhile. */
    unsigned long long int looks; /* How often the datapath was looked through. */
    unsigned long long int round; /* The rounds of the revalidators are counted. */
    struct ovs_list orphans;
    struct hmap returned; /* Flows that the datapath has again, after the revalidators were shown them as the agent's in this round. */
    struct hmap refused; /* Names of flows that the agent has refused, or is not asked for. */
    long long int look_at;    /* When it may be asked for the next of them. */
    long long int look_after; /* When the datapath may be looked through for them again. */
    struct hmap doubles; /* Names of flows that the datapath has under another one. */
    struct hmap chains;
    struct hmap meters;
    struct sluice_memory memory;
};

static struct sluice_offload *
sluice_cast(const struct dpif_offload *offload)
{
    dpif_offload_assert_class(offload, &dpif_offload_sluice_class);
    return CONTAINER_OF(offload, struct sluice_offload, offload);
}

static uint32_t
hash_ufid(const ovs_u128 *ufid)
{
    return hash_bytes(ufid, sizeof *ufid, 0);
}

/* What was counted. */

#define RECORDS (131072 / 8)
#define RECORD 8 /* Words. */

/* How many slots a memory has; 0 if it is not one that is known here. */
static uint64_t
memory_slots(const uint64_t *words, size_t length)
{
    uint64_t slots;

    if (length <= RECORDS * 8 || memcmp(words, "SLUICEFB", 8) || words[1] != 1 || words[2] != RECORD * 8) {
        return 0;
    }
    slots = __atomic_load_n(&words[4], __ATOMIC_RELAXED);
    return is_pow2(slots) && slots <= 1 << 24 && RECORDS * 8 + slots * RECORD * 8 <= length ? slots : 0;
}

static void
memory_forget(struct sluice_memory *memory)
{
    if (memory->words) {
        munmap(CONST_CAST(uint64_t *, memory->words), memory->length);
        memory->words = NULL;
    }
    if (memory->socket >= 0) {
        close(memory->socket);
        memory->socket = -1;
    }
}

static void
memory_say(struct sluice_memory *memory, uint32_t kind, uint32_t number)
{
    struct { char letters[8]; uint32_t version, kind, number, zero; } message = { "", 1, kind, number, 0 };

    memcpy(message.letters, "SLUICEFB", 8);
    if (send(memory->socket, &message, sizeof message, MSG_NOSIGNAL) < 0) {
        VLOG_DBG("the agent's memory: %s", ovs_strerror(errno));
    }
}

/* Takes the memory, if the agent has offered it by now. */
static void
memory_take(struct sluice_memory *memory)
{
    union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    char bytes[24];
    struct iovec part = { bytes, sizeof bytes };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    struct cmsghdr *beside;
    struct stat status;
    int file, seals;
    void *words;

    if (memory->words || memory->socket < 0 || recvmsg(memory->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 24) {
        return;
    }
    beside = CMSG_FIRSTHDR(&message);
    if (!beside || beside->cmsg_type != SCM_RIGHTS || beside->cmsg_len != CMSG_LEN(sizeof file)) {
        return;
    }
    memcpy(&file, CMSG_DATA(beside), sizeof file);
    /* One that cannot be cut short under a reader. */
    seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file, &status)) {
        memory_say(memory, 4, 1);
    } else {
        uint64_t slots;

        words = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, file, 0);
        slots = words == MAP_FAILED ? 0 : memory_slots(words, status.st_size);
        if (!slots) {
            memory_say(memory, 4, 2);
            if (words != MAP_FAILED) {
                munmap(words, status.st_size);
            }
        } else {
            memory->words = words;
            memory->length = status.st_size;
            memory->slots = slots;
            memory->epoch = memory->words[5];
            memory_say(memory, 3, 0);
        }
    }
    close(file);
}

/* Reads what was counted for a flow, and returns in which life: a number that no other life in this memory has. Returns 0 if nothing was
 * counted, or in the life that is 'over', of which the agent may not have heard yet. */
static uint64_t
memory_read(const struct sluice_memory *memory, const ovs_u128 *ufid, uint64_t over, struct dpif_flow_stats *stats)
{
    const uint64_t *header = memory->words;
    uint64_t slots = memory->slots;
    uint64_t name[2], x, home, reach;

    if (!header) {
        return 0;
    }
    memcpy(name, ufid, sizeof name);
    x = (name[0] ^ memory->epoch) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32) ^ name[1]) * UINT64_C(0xd6e8feb86659fd93);
    home = (x ^ (x >> 32)) & (slots - 1);
    reach = __atomic_load_n(&header[RECORDS + home * RECORD + 7], __ATOMIC_ACQUIRE);
    for (uint64_t i = 0; i <= MIN(reach, 127); i++) {
        uint64_t slot = (home + i) & (slots - 1);
        const uint64_t *record = &header[RECORDS + slot * RECORD];

        for (int tries = 0; tries < 8; tries++) {
            uint64_t words[RECORD];

            for (int word = 0; word < RECORD; word++) {
                words[word] = __atomic_load_n(&record[word], __ATOMIC_ACQUIRE);
            }
            if (words[0] & 1 || words[0] != __atomic_load_n(&record[0], __ATOMIC_ACQUIRE)) {
                continue;
            }
            if (words[1] == name[0] && words[2] == name[1] && (words[6] & 0xff) == 1) {
                /* The sequence is another one in each life of a slot. */
                uint64_t life = words[0] * slots + slot;

                if (life == over) {
                    return 0;
                }
                stats->n_packets = words[3];
                stats->n_bytes = words[4];
                stats->used = words[5];
                stats->tcp_flags = words[6] >> 8 & 0xff;
                return life;
            }
            break;
        }
    }
    return 0;
}

/* What was counted for meters. */

static struct sluice_meter *
meter_find(const struct sluice_offload *sluice, uint32_t id)
{
    struct sluice_meter *meter;

    HMAP_FOR_EACH_WITH_HASH (meter, node, hash_int(id, 0), &sluice->meters) {
        if (meter->id == id) {
            return meter;
        }
    }
    return NULL;
}

/* Reads what this agent has counted for a meter: what has reached it, or, if 'which' is 1, what it has dropped. Returns as memory_read() does. */
static uint64_t
meter_read(const struct sluice_offload *sluice, uint32_t id, uint32_t which, uint64_t over, struct dpif_flow_stats *counted)
{
    /* "SLUICEMT", the number, and which of the two counts. */
    ovs_u128 name = { .u32 = { 0x534c5549, 0x43454d54, id, which } };

    return memory_read(&sluice->memory, &name, over, counted);
}

static void
count_end_life(struct sluice_count *count)
{
    count->before.n_packets += count->now.n_packets;
    count->before.n_bytes += count->now.n_bytes;
    memset(&count->now, 0, sizeof count->now);
    count->life = 0;
}

/* Looks at what was counted. It never goes back, as when an agent ends the life of a meter whose number somebody has taken. */
static void
meter_look(const struct sluice_offload *sluice, struct sluice_meter *meter)
{
    for (uint32_t i = 0; i < ARRAY_SIZE(meter->counts); i++) {
        struct sluice_count *count = &meter->counts[i];
        struct dpif_flow_stats counted;
        uint64_t life = meter_read(sluice, meter->id, i, count->over, &counted);

        if (life && life != count->life) {
            count_end_life(count);
            count->life = life;
        }
        if (life && counted.n_packets >= count->now.n_packets && counted.n_bytes >= count->now.n_bytes) {
            count->now = counted;
        }
    }
}

/* The agent that counts is gone. */
static void
meter_end_lives(const struct sluice_offload *sluice, struct sluice_meter *meter)
{
    meter_look(sluice, meter);
    for (uint32_t i = 0; i < ARRAY_SIZE(meter->counts); i++) {
        count_end_life(&meter->counts[i]);
        meter->counts[i].over = 0;
    }
}

static void
forget_meters(struct sluice_offload *sluice)
{
    struct sluice_meter *meter;

    HMAP_FOR_EACH_POP (meter, node, &sluice->meters) {
        free(meter);
    }
}

/* Flows. */

static struct sluice_flow *
flow_find(const struct hmap *flows, const ovs_u128 *ufid)
{
    struct sluice_flow *flow;

    HMAP_FOR_EACH_WITH_HASH (flow, node, hash_ufid(ufid), flows) {
        if (ovs_u128_equals(flow->ufid, *ufid)) {
            return flow;
        }
    }
    return NULL;
}

/* Makes a flow that the agent has not been sent yet. */
static struct sluice_flow *
flow_new(const struct sluice_offload *sluice, const ovs_u128 *ufid, const struct nlattr *key, size_t key_len,
         const struct nlattr *mask, size_t mask_len, const struct nlattr *actions, size_t actions_len)
{
    const struct nlattr *chain = nl_attr_find__(key, key_len, OVS_KEY_ATTR_RECIRC_ID);
    struct sluice_flow *flow = xzalloc(sizeof *flow);
    struct dpif_flow_stats counted;

    flow->ufid = *ufid;
    flow->over = memory_read(&sluice->memory, ufid, 0, &counted);
    flow->chain = chain ? nl_attr_get_u32(chain) : 0;
    flow->key = ofpbuf_clone_data(key, key_len);
    flow->mask = ofpbuf_clone_data(mask, mask_len);
    flow->actions = ofpbuf_clone_data(actions, actions_len);
    return flow;
}

static void
flow_free(struct sluice_flow *flow)
{
    ofpbuf_delete(flow->key);
    ofpbuf_delete(flow->mask);
    ofpbuf_delete(flow->actions);
    free(flow);
}

static void
forget_flows(struct hmap *flows)
{
    struct sluice_flow *flow;

    HMAP_FOR_EACH_POP (flow, node, flows) {
        flow_free(flow);
    }
}

/* Reads what a flow matches, into a place that is given; NULL if that cannot be read. */
static const struct match *
match_read(struct match *match, const struct nlattr *key, size_t key_len, const struct nlattr *mask, size_t mask_len)
{
    memset(match, 0, sizeof *match);
    if (odp_flow_key_to_flow(key, key_len, &match->flow, NULL) != ODP_FIT_PERFECT
        || odp_flow_key_to_mask(mask, mask_len, &match->wc, &match->flow, NULL) != ODP_FIT_PERFECT) {
        return NULL;
    }
    match_zero_wildcarded_fields(match);
    return match;
}

static const struct match *
flow_match(const struct sluice_flow *flow, struct match *match)
{
    return match_read(match, flow->key->data, flow->key->size, flow->mask->data, flow->mask->size);
}

/* Finds the flow that matches the same packets. */
static const struct sluice_flow *
flow_find_match(const struct sluice_offload *sluice, const struct match *match)
{
    const struct sluice_flow *flow;

    HMAP_FOR_EACH_WITH_HASH (flow, match_node, match_hash(match, 0), &sluice->matches) {
        struct match other;

        if (flow_match(flow, &other) && match_equal(&other, match)) {
            return flow;
        }
    }
    return NULL;
}

/* Without a match if it cannot be read. */
static void
flow_insert(struct sluice_offload *sluice, struct sluice_flow *flow, const struct match *match)
{
    hmap_insert(&sluice->flows, &flow->node, hash_ufid(&flow->ufid));
    if (match) {
        hmap_insert(&sluice->matches, &flow->match_node, match_hash(match, 0));
    } else {
        hmap_node_nullify(&flow->match_node);
    }
}

static void
flow_remove(struct sluice_offload *sluice, struct sluice_flow *flow)
{
    hmap_remove(&sluice->flows, &flow->node);
    if (!hmap_node_is_null(&flow->match_node)) {
        hmap_remove(&sluice->matches, &flow->match_node);
    }
}

/* Looks at what was counted. It never goes back, as when an agent that ends withdraws it: ovs-vswitchd adds the difference to what it was shown
 * before without a look at its sign. */
static void
flow_look(const struct sluice_offload *sluice, struct sluice_flow *flow)
{
    struct dpif_flow_stats counted;

    if (memory_read(&sluice->memory, &flow->ufid, flow->over, &counted)
        && counted.n_packets >= flow->counted.n_packets && counted.n_bytes >= flow->counted.n_bytes) {
        flow->counted = counted;
    }
}

/* What there is to tell of what was counted when it was last looked at. */
static void
flow_tell(const struct sluice_flow *flow, struct dpif_flow_stats *stats)
{
    *stats = flow->counted;
    stats->n_packets += flow->moved.n_packets - flow->zero.n_packets;
    stats->n_bytes += flow->moved.n_bytes - flow->zero.n_bytes;
    stats->used = MAX(flow->moved.used, flow->counted.used);
    stats->tcp_flags |= flow->moved.tcp_flags;
}

static void
flow_stats(const struct sluice_offload *sluice, struct sluice_flow *flow, struct dpif_flow_stats *stats)
{
    flow_look(sluice, flow);
    flow_tell(flow, stats);
}

/* Names. */

static void
forget_names(struct hmap *names)
{
    struct sluice_name *name;

    HMAP_FOR_EACH_POP (name, node, names) {
        free(name);
    }
}

static struct sluice_name *
name_find(const struct hmap *names, const ovs_u128 *ufid)
{
    struct sluice_name *name;

    HMAP_FOR_EACH_WITH_HASH (name, node, hash_ufid(ufid), names) {
        if (ovs_u128_equals(name->ufid, *ufid)) {
            return name;
        }
    }
    return NULL;
}

static struct sluice_name *
remember_name(struct hmap *names, const ovs_u128 *ufid)
{
    struct sluice_name *name = name_find(names, ufid);

    if (!name) {
        if (hmap_count(names) >= MAX_NAMES) {
            forget_names(names);
        }
        name = xzalloc(sizeof *name);
        name->ufid = *ufid;
        hmap_insert(names, &name->node, hash_ufid(ufid));
    }
    return name;
}

static void
forget_name(struct hmap *names, struct sluice_name *name)
{
    hmap_remove(names, &name->node);
    free(name);
}

/* Refused flows. What the device has not taken it may take later: it has room again, or a port or a neighbour is there. A flow that has traffic all
 * the time is not put anew, so all flows of the datapath are looked through for those that may be sent again. */

static void
remember_refused(struct sluice_offload *sluice, const ovs_u128 *ufid)
{
    struct sluice_name *name = remember_name(&sluice->refused, ufid);

    name->wait = name->wait ? MIN(2 * name->wait, REFUSED_AT_MOST) : REFUSED_FOR;
    name->until = time_msec() + name->wait;
    sluice->look_at = MIN(sluice->look_at, name->until);
}

static bool
is_refused(const struct sluice_offload *sluice, const ovs_u128 *ufid)
{
    const struct sluice_name *name = name_find(&sluice->refused, ufid);

    return name && time_msec() < name->until;
}

static size_t
count_refused(const struct sluice_offload *sluice)
{
    const struct sluice_name *name;
    long long int now = time_msec();
    size_t count = 0;

    HMAP_FOR_EACH (name, node, &sluice->refused) {
        count += now < name->until;
    }
    return count;
}

/* Forgets those that may be sent and are not there any more, and finds when the next one may be. */
static void
review_refused(struct sluice_offload *sluice)
{
    long long int now = time_msec();
    struct sluice_name *name;

    HMAP_FOR_EACH_SAFE (name, node, &sluice->refused) {
        if (now < name->until) {
            sluice->look_at = MIN(sluice->look_at, name->until);
        } else if (!flow_find(&sluice->moving, &name->ufid)) {
            forget_name(&sluice->refused, name);
        }
    }
}

static void
forget_refused(struct sluice_offload *sluice)
{
    forget_names(&sluice->refused);
    sluice->look_at = LLONG_MAX;
}

static void
flow_orphan(struct sluice_offload *sluice, struct sluice_flow *flow)
{
    flow_look(sluice, flow);
    flow_remove(sluice, flow);
    ovs_list_push_back(&sluice->orphans, &flow->orphan_node);
}

/* The agent. */

static void
disconnect(struct sluice_offload *sluice, const char *why)
{
    struct sluice_meter *meter;
    struct sluice_flow *flow;

    if (sluice->socket < 0) {
        return;
    }
    VLOG_WARN("%s: %s, its flows go to the datapath", sluice->run_dir, why);
    close(sluice->socket);
    sluice->socket = -1;
    sluice->is_greeted = sluice->must_look = sluice->is_looking = sluice->has_port = false;
    sluice->again = time_msec() + AGAIN;
    HMAP_FOR_EACH_SAFE (flow, node, &sluice->flows) {
        flow_orphan(sluice, flow);
    }
    forget_flows(&sluice->moving);
    forget_refused(sluice);
    HMAP_FOR_EACH (meter, node, &sluice->meters) {
        meter_end_lives(sluice, meter);
    }
    memory_forget(&sluice->memory);
}

static void
begin_message(struct ofpbuf *message, int family, uint8_t command)
{
    struct ovs_header *header;

    ofpbuf_init(message, 1024);
    nl_msg_put_genlmsghdr(message, 0, family, 0, command, 1);
    header = ofpbuf_put_zeros(message, sizeof *header);
    header->dp_ifindex = 0;
}

/* Sends a message. One that 'must' arrive waits for room, and if there is none the agent loses all flows. */
static bool
send_message(struct sluice_offload *sluice, struct ofpbuf *message, bool must)
{
    bool is_sent = false;

    nl_msg_nlmsghdr(message)->nlmsg_len = message->size;
    if (sluice->is_greeted) {
        is_sent = send(sluice->socket, message->data, message->size, MSG_NOSIGNAL | (must ? 0 : MSG_DONTWAIT)) >= 0;
        if (!is_sent && (must || errno != EAGAIN)) {
            disconnect(sluice, ovs_strerror(errno));
        }
    }
    ofpbuf_uninit(message);
    return is_sent;
}

static void
send_port(struct sluice_offload *sluice, const struct dpif_offload_port *port, uint8_t command)
{
    bool is_internal = !strcmp(netdev_get_type(port->netdev), "internal");
    char name[NETDEV_VPORT_NAME_BUFSIZE];
    struct ofpbuf message;

    begin_message(&message, FAMILY_VPORT, command);
    nl_msg_put_u32(&message, OVS_VPORT_ATTR_PORT_NO, odp_to_u32(port->port_no));
    nl_msg_put_u32(&message, OVS_VPORT_ATTR_TYPE, is_internal ? OVS_VPORT_TYPE_INTERNAL : OVS_VPORT_TYPE_NETDEV);
    nl_msg_put_string(&message, OVS_VPORT_ATTR_NAME, netdev_vport_get_dpif_port(port->netdev, name, sizeof name));
    send_message(sluice, &message, true);
}

static void
send_meter(struct sluice_offload *sluice, const struct sluice_meter *meter, uint8_t command)
{
    struct ofpbuf message;

    begin_message(&message, FAMILY_METER, command);
    nl_msg_put_u32(&message, OVS_METER_ATTR_ID, meter->id);
    if (command == OVS_METER_CMD_SET) {
        size_t bands, band;

        if (meter->is_kbps) {
            nl_msg_put_flag(&message, OVS_METER_ATTR_KBPS);
        }
        bands = nl_msg_start_nested(&message, OVS_METER_ATTR_BANDS);
        band = nl_msg_start_nested(&message, OVS_BAND_ATTR_UNSPEC);
        nl_msg_put_u32(&message, OVS_BAND_ATTR_TYPE, OVS_METER_BAND_TYPE_DROP);
        nl_msg_put_u32(&message, OVS_BAND_ATTR_RATE, meter->rate);
        nl_msg_put_u32(&message, OVS_BAND_ATTR_BURST, meter->burst);
        nl_msg_end_nested(&message, band);
        nl_msg_end_nested(&message, bands);
    }
    send_message(sluice, &message, true);
}

static bool
send_flow(struct sluice_offload *sluice, const struct sluice_flow *flow, uint8_t command)
{
    struct ofpbuf message;

    begin_message(&message, FAMILY_FLOW, command);
    nl_msg_put_unspec(&message, OVS_FLOW_ATTR_UFID, &flow->ufid, sizeof flow->ufid);
    if (command != OVS_FLOW_CMD_DEL) {
        nl_msg_put_unspec(&message, OVS_FLOW_ATTR_KEY, flow->key->data, flow->key->size);
        if (flow->mask->size) {
            nl_msg_put_unspec(&message, OVS_FLOW_ATTR_MASK, flow->mask->data, flow->mask->size);
        }
        nl_msg_put_unspec(&message, OVS_FLOW_ATTR_ACTIONS, flow->actions->data, flow->actions->size);
    }
    return send_message(sluice, &message, command != OVS_FLOW_CMD_NEW);
}

/* Takes a flow away from the agent, for the datapath to have it. The agent may have it still, or anew. */
static void
flow_take_back(struct sluice_offload *sluice, struct sluice_flow *flow)
{
    flow_orphan(sluice, flow);
    send_flow(sluice, flow, OVS_FLOW_CMD_DEL);
}

static void
refuse(struct sluice_offload *sluice, const ovs_u128 *ufid)
{
    struct sluice_flow *flow = flow_find(&sluice->flows, ufid);

    if (flow) {
        flow_take_back(sluice, flow);
        remember_refused(sluice, ufid);
        return;
    }
    flow = flow_find(&sluice->moving, ufid);
    if (flow) {
        flow->is_refused = true;
        remember_refused(sluice, ufid);
    }
}

static int
connect_to(const char *run_dir, const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct timeval patience = { PATIENCE, 0 };
    int queue = QUEUE;

    if (file < 0) {
        return -1;
    }
    setsockopt(file, SOL_SOCKET, SO_SNDBUFFORCE, &queue, sizeof queue);
    setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", run_dir, name) >= (int) sizeof address.sun_path
        || connect(file, (struct sockaddr *) &address, sizeof address)) {
        close(file);
        return -1;
    }
    /* What is sent may wait, where it must arrive. */
    fcntl(file, F_SETFL, 0);
    return file;
}

/* Looks for the agent. It leaves the rules of an ovs-vswitchd that has died where they are as long as the next one has only connected, which may
 * wait for its OpenFlow rules (other_config:flow-restore-wait). */
static void
connect_agent(struct sluice_offload *sluice)
{
    if (sluice->socket < 0 && time_msec() >= sluice->again) {
        sluice->again = time_msec() + AGAIN;
        sluice->socket = connect_to(sluice->run_dir, "ovs-flows.sock");
    }
}

/* Begins with the agent: who has threads that operate and dump has OpenFlow rules, too. */
static void
greet(struct sluice_offload *sluice)
{
    struct ovs_dp_stats nothing = { .n_flows = 0 };
    struct dpif_offload_port *port;
    struct sluice_meter *meter;
    struct ofpbuf message;

    if (sluice->socket < 0 || sluice->is_greeted) {
        return;
    }
    VLOG_INFO("%s: flows go to Sluice", sluice->run_dir);
    sluice->is_greeted = true;
    begin_message(&message, FAMILY_DATAPATH, OVS_DP_CMD_NEW);
    nl_msg_put_string(&message, OVS_DP_ATTR_NAME, sluice->datapath);
    nl_msg_put_unspec(&message, OVS_DP_ATTR_STATS, &nothing, sizeof nothing);
    nl_msg_put_u32(&message, OVS_DP_ATTR_USER_FEATURES, sluice->features);
    send_message(sluice, &message, true);
    DPIF_OFFLOAD_PORT_FOR_EACH (port, &sluice->offload) {
        send_port(sluice, port, OVS_VPORT_CMD_NEW);
    }
    HMAP_FOR_EACH (meter, node, &sluice->meters) {
        send_meter(sluice, meter, OVS_METER_CMD_SET);
    }
    if (sluice->socket < 0) {
        return;
    }
    sluice->memory.socket = connect_to(sluice->run_dir, "ovs-feedback.sock");
    if (sluice->memory.socket >= 0) {
        memory_say(&sluice->memory, 1, 0);
    }
    sluice->must_look = true;
}

/* Takes what the agent has said: the UFIDs of flows that it refuses, 16 bytes each. */
static void
hear(struct sluice_offload *sluice)
{
    bool is_enabled;

    atomic_read_relaxed(&sluice->is_enabled, &is_enabled);
    if (!is_enabled) {
        return;
    }
    connect_agent(sluice);
    greet(sluice);
    memory_take(&sluice->memory);
    while (sluice->socket >= 0) {
        ovs_u128 ufids[1024];
        ssize_t length = recv(sluice->socket, ufids, sizeof ufids, MSG_DONTWAIT);

        if (length > 0) {
            for (size_t i = 0; i < length / sizeof *ufids; i++) {
                refuse(sluice, &ufids[i]);
            }
        } else if (length == 0) {
            disconnect(sluice, "the agent is gone");
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            disconnect(sluice, ovs_strerror(errno));
        }
    }
}

/* Chains of the kernel's datapath. */

static bool
chain_is_kernels(const struct sluice_offload *sluice, uint32_t number)
{
    struct sluice_chain *chain;

    if (number && hmap_count(&sluice->chains) >= MAX_CHAINS) {
        return true;
    }
    HMAP_FOR_EACH_WITH_HASH (chain, node, hash_int(number, 0), &sluice->chains) {
        if (chain->number == number) {
            return true;
        }
    }
    return false;
}

static void
chain_give_to_kernel(struct sluice_offload *sluice, uint32_t number)
{
    struct sluice_chain *chain;
    struct sluice_flow *flow;

    if (chain_is_kernels(sluice, number)) {
        return;
    }
    chain = xmalloc(sizeof *chain);
    chain->number = number;
    hmap_insert(&sluice->chains, &chain->node, hash_int(number, 0));
    HMAP_FOR_EACH_SAFE (flow, node, &sluice->flows) {
        if (flow->chain == number) {
            flow_take_back(sluice, flow);
            if (sluice->socket < 0) {
                /* The agent is lost over it, and no flow is left here. */
                break;
            }
        }
    }
}

static void
forget_chains(struct sluice_offload *sluice)
{
    struct sluice_chain *chain;

    HMAP_FOR_EACH_POP (chain, node, &sluice->chains) {
        free(chain);
    }
}

/* The kernel's datapath gets a flow with these actions. */
static void
give_actions_to_kernel(struct sluice_offload *sluice, const struct nlattr *actions, size_t length)
{
    const struct nlattr *action, *part;
    size_t left, left_of_part;

    NL_ATTR_FOR_EACH (action, left, actions, length) {
        switch (nl_attr_type(action)) {
        case OVS_ACTION_ATTR_RECIRC:
            chain_give_to_kernel(sluice, nl_attr_get_u32(action));
            break;
        case OVS_ACTION_ATTR_CLONE:
            give_actions_to_kernel(sluice, nl_attr_get(action), nl_attr_get_size(action));
            break;
        case OVS_ACTION_ATTR_SAMPLE:
            NL_NESTED_FOR_EACH (part, left_of_part, action) {
                if (nl_attr_type(part) == OVS_SAMPLE_ATTR_ACTIONS) {
                    give_actions_to_kernel(sluice, nl_attr_get(part), nl_attr_get_size(part));
                }
            }
            break;
        case OVS_ACTION_ATTR_CHECK_PKT_LEN:
            NL_NESTED_FOR_EACH (part, left_of_part, action) {
                if (nl_attr_type(part) == OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_GREATER
                    || nl_attr_type(part) == OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_LESS_EQUAL) {
                    give_actions_to_kernel(sluice, nl_attr_get(part), nl_attr_get_size(part));
                }
            }
            break;
        }
    }
}

/* Puts flows that the agent does not have into the datapath. The mutex is held, so that none of them is deleted there before it is put. */
static void
put_orphans(struct sluice_offload *sluice, struct dpif *dpif)
{
    struct sluice_flow *flow;

    /* Which may make more of them. */
    LIST_FOR_EACH (flow, orphan_node, &sluice->orphans) {
        give_actions_to_kernel(sluice, flow->actions->data, flow->actions->size);
    }
    LIST_FOR_EACH_POP (flow, orphan_node, &sluice->orphans) {
        struct dpif_op op = {
            .type = DPIF_OP_FLOW_PUT,
            .flow_put = {
                .flags = DPIF_FP_CREATE,
                .key = flow->key->data, .key_len = flow->key->size,
                .mask = flow->mask->data, .mask_len = flow->mask->size,
                .actions = flow->actions->data, .actions_len = flow->actions->size,
                .ufid = &flow->ufid, .pmd_id = PMD_ID_NULL,
            },
        };
        struct dpif_op *ops = &op;

        dpif->dpif_class->operate(dpif, &ops, 1);
        if (op.error == EEXIST) {
            /* Two packets of one flow came before it was anywhere, and each has given it a UFID. ovs-vswitchd will delete both. */
            flow_tell(flow, &remember_name(&sluice->doubles, &flow->ufid)->counted);
        } else if (op.error) {
            VLOG_WARN("a flow that Sluice does not have is not taken by the datapath: %s", ovs_strerror(op.error));
        }
        if (!op.error && flow->shown_in == sluice->round) {
            hmap_insert(&sluice->returned, &flow->node, hash_ufid(&flow->ufid));
        } else {
            flow_free(flow);
        }
    }
}

/* Flows that move. The datapath has them because there was no agent, or because it has refused them. They are sent to it, and have a rule in the
 * device then, which sees packets before the datapath does. What the datapath has counted is lost to ovs-vswitchd when the flow is shown in another
 * place, and packets that the device has passed on before the rule may reach it late. So the revalidators go round until one of their rounds lies
 * between two looks that find the same count: they were shown just that. Then the flow leaves the datapath, and what it has counted in the very end
 * is told beside what the agent counts. So a packet is always forwarded, and counted once. */

/* Leaves a flow where it is. The agent may have it. What it leads to is the kernel's as well, if it 'is_kernels' from now on. */
static void
stay(struct sluice_offload *sluice, struct sluice_flow *flow, bool is_kernels)
{
    /* First of all: if the agent is lost over the rest, all that move are freed. */
    hmap_remove(&sluice->moving, &flow->node);
    if (is_kernels) {
        give_actions_to_kernel(sluice, flow->actions->data, flow->actions->size);
    }
    if (flow->is_sent) {
        send_flow(sluice, flow, OVS_FLOW_CMD_DEL);
    }
    flow_free(flow);
}

/* Finds all flows of the datapath. One that was changed or deleted while it was looked for may be told as it was before, and stays for now. */
static void
move_begin(struct sluice_offload *sluice, struct dpif *dpif)
{
    struct dpif_flow_dump_thread *thread;
    struct dpif_flow shown[DUMP_BATCH];
    struct dpif_flow_dump *dump;
    int count;

    ovs_mutex_lock(&sluice->mutex);
    forget_chains(sluice);
    sluice->is_flushed = false;
    ovs_mutex_unlock(&sluice->mutex);

    dump = dpif_flow_dump_create(dpif, false, NULL);
    thread = dpif_flow_dump_thread_create(dump);
    /* Not those that the agent has. */
    while ((count = dpif->dpif_class->flow_dump_next(thread, shown, DUMP_BATCH)) > 0) {
        ovs_mutex_lock(&sluice->mutex);
        for (int i = 0; i < count && sluice->socket >= 0 && !sluice->is_flushed; i++) {
            const struct dpif_flow *one = &shown[i];

            if (!one->ufid_present || is_refused(sluice, &one->ufid)) {
                give_actions_to_kernel(sluice, one->actions, one->actions_len);
            } else if (!flow_find(&sluice->flows, &one->ufid) && !flow_find(&sluice->moving, &one->ufid)) {
                struct sluice_flow *flow = flow_new(sluice, &one->ufid, one->key, one->key_len, one->mask,
                                                    one->mask_len, one->actions, one->actions_len);

                hmap_insert(&sluice->moving, &flow->node, hash_ufid(&flow->ufid));
            }
        }
        ovs_mutex_unlock(&sluice->mutex);
    }
    dpif_flow_dump_thread_destroy(thread);
    dpif_flow_dump_destroy(dump);

    ovs_mutex_lock(&sluice->mutex);
    if (sluice->has_port) {
        /* The next look finds them. */
        forget_refused(sluice);
    }
    review_refused(sluice);
    sluice->has_port = sluice->is_looking = false;
    ovs_mutex_unlock(&sluice->mutex);
}

/* Looks what the datapath has counted for some flows that have a rule, brings those to the front that may leave it, and returns how many. */
static size_t
find_resting(const struct sluice_offload *sluice, struct dpif *dpif, struct sluice_flow **ruled, size_t n_ruled)
{
    struct dpif_op op[DUMP_BATCH], *ops[DUMP_BATCH];
    struct dpif_flow shown[DUMP_BATCH];
    struct ofpbuf buffers[DUMP_BATCH];
    size_t n_ready = 0;

    for (size_t i = 0; i < n_ruled; i++) {
        ofpbuf_init(&buffers[i], 1024);
        op[i] = (struct dpif_op) {
            .type = DPIF_OP_FLOW_GET,
            .flow_get = {
                .key = ruled[i]->key->data, .key_len = ruled[i]->key->size,
                .ufid = &ruled[i]->ufid, .pmd_id = PMD_ID_NULL, .buffer = &buffers[i], .flow = &shown[i],
            },
        };
        ops[i] = &op[i];
    }
    dpif->dpif_class->operate(dpif, ops, n_ruled);
    for (size_t i = 0; i < n_ruled; i++) {
        struct sluice_flow *flow = ruled[i];
        bool is_gone = op[i].error == ENOENT;

        if (!op[i].error && (!flow->rests_from || shown[i].stats.n_packets != flow->resting.n_packets)) {
            flow->rests_from = sluice->round;
            flow->resting = shown[i].stats;
        }
        /* The device may pass on packets of a flow as long as it has them, such as fragments. */
        if (is_gone || (!op[i].error && (flow->rests_from < sluice->round || flow->ruled_in + REST_AT_MOST < sluice->round))) {
            ruled[n_ready++] = flow;
        }
        ofpbuf_uninit(&buffers[i]);
    }
    return n_ready;
}

/* Lets flows leave the datapath. */
static void
leave_datapath(struct sluice_offload *sluice, struct dpif *dpif, struct sluice_flow **ready, size_t n_ready)
{
    struct dpif_op op[DUMP_BATCH], *ops[DUMP_BATCH];
    struct dpif_flow_stats stats[DUMP_BATCH];
    struct match match;

    for (size_t i = 0; i < n_ready; i++) {
        op[i] = (struct dpif_op) {
            .type = DPIF_OP_FLOW_DEL,
            .flow_del = {
                .key = ready[i]->key->data, .key_len = ready[i]->key->size,
                .ufid = &ready[i]->ufid, .pmd_id = PMD_ID_NULL, .stats = &stats[i],
            },
        };
        ops[i] = &op[i];
    }
    dpif->dpif_class->operate(dpif, ops, n_ready);
    for (size_t i = 0; i < n_ready; i++) {
        if (!op[i].error) {
            ready[i]->moved = stats[i];
            ready[i]->moved.n_packets -= ready[i]->resting.n_packets;
            ready[i]->moved.n_bytes -= ready[i]->resting.n_bytes;
            hmap_remove(&sluice->moving, &ready[i]->node);
            flow_insert(sluice, ready[i], flow_match(ready[i], &match));
        }
    }
    /* Those that are not there any more, if the agent is not lost over them, with which none moves. */
    for (size_t i = 0; i < n_ready && sluice->socket >= 0; i++) {
        if (op[i].error) {
            stay(sluice, ready[i], false);
        }
    }
}

/* Takes the next step with some flows; false if there is nothing to do for now. One that is passed over has its turn half a second later. */
static bool
move_some(struct sluice_offload *sluice, struct dpif *dpif, struct hmap_position *position)
{
    struct sluice_flow *ruled[DUMP_BATCH];
    bool is_over = false;
    size_t n_ruled = 0;

    for (int i = 0; i < DUMP_BATCH && !is_over && sluice->socket >= 0; i++) {
        struct hmap_node *node = hmap_at_position(&sluice->moving, position);
        struct sluice_flow *flow = CONTAINER_OF(node, struct sluice_flow, node);
        struct dpif_flow_stats counted;

        if (!node) {
            is_over = true;
        } else if (flow->is_refused || chain_is_kernels(sluice, flow->chain)) {
            stay(sluice, flow, true);
            /* Flows that it leads to may be among these. */
            n_ruled = 0;
        } else if (!flow->is_sent) {
            if (send_flow(sluice, flow, OVS_FLOW_CMD_NEW)) {
                flow->is_sent = true;
            } else {
                is_over = true;
            }
        } else if (flow->ruled_in) {
            ruled[n_ruled++] = flow;
        } else if (memory_read(&sluice->memory, &flow->ufid, flow->over, &counted)) {
            flow->ruled_in = sluice->round;
            ruled[n_ruled++] = flow;
        }
    }
    /* Without the agent nothing moves. */
    if (sluice->socket >= 0) {
        leave_datapath(sluice, dpif, ruled, find_resting(sluice, dpif, ruled, n_ruled));
    }
    return !is_over && sluice->socket >= 0;
}

/* Puts flows into the datapath that the agent does not have, and moves others to it, if there are any. The revalidators begin a round: flows that
 * they find nowhere in four of them are deleted by ovs-vswitchd. */
static void
move_flows(struct sluice_offload *sluice)
{
    struct hmap_position position = { 0, 0 };
    long long int now = time_msec();
    bool looks, must_move, goes_on;
    struct dpif *dpif;

    ovs_mutex_lock(&sluice->mutex);
    sluice->round++;
    looks = sluice->is_looking;
    must_move = looks || !hmap_is_empty(&sluice->moving) || !ovs_list_is_empty(&sluice->orphans);
    /* What is counted must be known. It is looked in the next round, when all is over that somebody was about to change before. */
    if (!looks && (sluice->must_look || now >= MAX(sluice->look_at, sluice->look_after)) && sluice->memory.words) {
        sluice->must_look = false;
        sluice->is_looking = true;
        sluice->looks++;
        sluice->look_at = LLONG_MAX;
        sluice->look_after = now + LOOK_EVERY;
    }
    ovs_mutex_unlock(&sluice->mutex);
    if (!must_move || dpif_open(sluice->datapath, TYPE, &dpif)) {
        return;
    }
    ovs_mutex_lock(&sluice->mutex);
    put_orphans(sluice, dpif);
    ovs_mutex_unlock(&sluice->mutex);
    if (looks) {
        move_begin(sluice, dpif);
    }
    do {
        ovs_mutex_lock(&sluice->mutex);
        goes_on = move_some(sluice, dpif, &position);
        ovs_mutex_unlock(&sluice->mutex);
    } while (goes_on);
    dpif_close(dpif);
}

/* Operations. */

static void
set_actions(struct sluice_flow *flow, const struct dpif_flow_put *put)
{
    ofpbuf_delete(flow->actions);
    flow->actions = ofpbuf_clone_data(put->actions, put->actions_len);
}

static int
flow_put(struct sluice_offload *sluice, struct dpif_flow_put *put)
{
    const struct match *match;
    struct sluice_name *double_name;
    struct sluice_flow *flow;
    struct match place;

    if (!put->ufid || put->flags & DPIF_FP_PROBE || sluice->socket < 0) {
        return EOPNOTSUPP;
    }
    flow = flow_find(&sluice->flows, put->ufid);
    if (flow) {
        if (!(put->flags & DPIF_FP_MODIFY)) {
            return EEXIST;
        }
        if (put->stats) {
            flow_stats(sluice, flow, put->stats);
        }
        if (put->flags & DPIF_FP_ZERO_STATS) {
            flow_look(sluice, flow);
            flow->zero = flow->counted;
            flow->moved.n_packets = flow->moved.n_bytes = 0;
        }
        set_actions(flow, put);
        /* If the agent is lost over it, the flow is on its way to the datapath as it is now. */
        send_flow(sluice, flow, OVS_FLOW_CMD_SET);
        return 0;
    }
    double_name = name_find(&sluice->doubles, put->ufid);
    if (double_name && put->flags & DPIF_FP_CREATE) {
        forget_name(&sluice->doubles, double_name);
    } else if (double_name) {
        /* It is changed under its other name. */
        if (put->stats) {
            memset(put->stats, 0, sizeof *put->stats);
        }
        return 0;
    }
    /* One that is only to be modified is in the datapath. */
    if (!(put->flags & DPIF_FP_CREATE) || is_refused(sluice, put->ufid)) {
        return EOPNOTSUPP;
    }
    /* Until a flow has its rule, each of its packets is a miss, and one that differs where the flow does not look gives it another UFID. As in the
     * kernel's datapath the first name stays. */
    match = match_read(&place, put->key, put->key_len, put->mask, put->mask_len);
    if (match && flow_find_match(sluice, match)) {
        return EEXIST;
    }
    flow = flow_new(sluice, put->ufid, put->key, put->key_len, put->mask, put->mask_len, put->actions,
                    put->actions_len);
    if (chain_is_kernels(sluice, flow->chain) || !send_flow(sluice, flow, OVS_FLOW_CMD_NEW)) {
        flow_free(flow);
        return EOPNOTSUPP;
    }
    flow_insert(sluice, flow, match);
    if (put->stats) {
        memset(put->stats, 0, sizeof *put->stats);
    }
    return 0;
}

/* Deletes a flow of the datapath here. */
static int
datapath_del(struct dpif *dpif, const struct dpif_flow_del *del)
{
    struct dpif_op op = { .type = DPIF_OP_FLOW_DEL, .flow_del = *del };
    struct dpif_op *ops = &op;

    dpif->dpif_class->operate(dpif, &ops, 1);
    return op.error;
}

/* Deletes a flow that the datapath may not know by this name, of which ovs-vswitchd would warn. It takes what it was shown of the flow, while the
 * agent had it, from what it is told now. */
static int
double_del(struct sluice_offload *sluice, struct sluice_name *name, struct dpif *dpif, const struct dpif_flow_del *del)
{
    int error = datapath_del(dpif, del);

    if (error == ENOENT && del->stats) {
        *del->stats = name->counted;
    }
    forget_name(&sluice->doubles, name);
    return error == ENOENT ? 0 : error;
}

/* Deletes a flow that the datapath has again since the revalidators were shown it as the agent's. They take what it counts from what they were shown,
 * so that counts on top of that. */
static int
returned_del(struct sluice_offload *sluice, struct sluice_flow *flow, struct dpif *dpif, const struct dpif_flow_del *del)
{
    int error = datapath_del(dpif, del);

    if (!error && del->stats) {
        struct dpif_flow_stats before;

        flow_tell(flow, &before);
        del->stats->n_packets += before.n_packets;
        del->stats->n_bytes += before.n_bytes;
        del->stats->used = MAX(del->stats->used, before.used);
        del->stats->tcp_flags |= before.tcp_flags;
    }
    hmap_remove(&sluice->returned, &flow->node);
    flow_free(flow);
    return error;
}

static int
flow_del(struct sluice_offload *sluice, struct dpif *dpif, struct dpif_flow_del *del)
{
    struct sluice_flow *flow = del->ufid ? flow_find(&sluice->flows, del->ufid) : NULL;
    struct sluice_name *name = del->ufid ? name_find(&sluice->doubles, del->ufid) : NULL;

    if (!flow && name) {
        return double_del(sluice, name, dpif, del);
    }
    if (!flow) {
        flow = del->ufid ? flow_find(&sluice->returned, del->ufid) : NULL;
        return flow ? returned_del(sluice, flow, dpif, del) : EOPNOTSUPP;
    }
    if (del->stats) {
        flow_stats(sluice, flow, del->stats);
    }
    flow_remove(sluice, flow);
    send_flow(sluice, flow, OVS_FLOW_CMD_DEL);
    flow_free(flow);
    return 0;
}

static void
flow_show(const struct sluice_offload *sluice, struct sluice_flow *flow, struct dpif_flow *shown)
{
    memset(shown, 0, sizeof *shown);
    shown->key_len = flow->key->size;
    shown->mask_len = flow->mask->size;
    shown->actions_len = flow->actions->size;
    shown->ufid = flow->ufid;
    shown->ufid_present = true;
    shown->pmd_id = PMD_ID_NULL;
    flow_stats(sluice, flow, &shown->stats);
    shown->attrs.offloaded = true;
    shown->attrs.dp_layer = "sluice";
}

static int
flow_get(struct sluice_offload *sluice, struct dpif_flow_get *get)
{
    struct sluice_flow *flow = get->ufid ? flow_find(&sluice->flows, get->ufid) : NULL;
    const char *data;

    if (!flow) {
        return EOPNOTSUPP;
    }
    flow_show(sluice, flow, get->flow);
    ofpbuf_put(get->buffer, flow->key->data, flow->key->size);
    ofpbuf_put(get->buffer, flow->mask->data, flow->mask->size);
    ofpbuf_put(get->buffer, flow->actions->data, flow->actions->size);
    data = (const char *) ofpbuf_tail(get->buffer) - flow->key->size - flow->mask->size - flow->actions->size;
    get->flow->key = ALIGNED_CAST(const struct nlattr *, data);
    get->flow->mask = ALIGNED_CAST(const struct nlattr *, data + flow->key->size);
    get->flow->actions = ALIGNED_CAST(const struct nlattr *, data + flow->key->size + flow->mask->size);
    return 0;
}

static const ovs_u128 *
changed_flow(const struct dpif_op *op)
{
    return op->type == DPIF_OP_FLOW_PUT ? op->flow_put.ufid : op->type == DPIF_OP_FLOW_DEL ? op->flow_del.ufid : NULL;
}

/* The datapath is about to change a flow, whatever is told of it now. */
static void
note_change(struct sluice_offload *sluice, const struct dpif_op *op)
{
    const ovs_u128 *ufid = changed_flow(op);

    if (ufid) {
        remember_refused(sluice, ufid);
    }
}

/* Follows an operation on a flow that moves, which the datapath does itself. False if the flow does not move. */
static bool
change_moving(struct sluice_offload *sluice, const struct dpif_op *op)
{
    const ovs_u128 *ufid = changed_flow(op);
    struct sluice_flow *flow = ufid ? flow_find(&sluice->moving, ufid) : NULL;

    if (!flow) {
        return false;
    }
    if (op->type == DPIF_OP_FLOW_DEL) {
        stay(sluice, flow, false);
    } else if (op->flow_put.flags & DPIF_FP_MODIFY) {
        set_actions(flow, &op->flow_put);
        flow->ruled_in = flow->rests_from = 0;
        if (flow->is_sent) {
            send_flow(sluice, flow, OVS_FLOW_CMD_SET);
        }
    }
    return true;
}

static void
sluice_operate(struct dpif *dpif, const struct dpif_offload *offload, struct dpif_op **ops, size_t n_ops)
{
    struct sluice_offload *sluice = sluice_cast(offload);

    ovs_mutex_lock(&sluice->mutex);
    hear(sluice);
    for (size_t i = 0; i < n_ops; i++) {
        struct dpif_op *op = ops[i];
        int error = EOPNOTSUPP;

        /* The operation before may have taken flows back, of which this can be one. */
        put_orphans(sluice, dpif);
        if (op->error >= 0 || change_moving(sluice, op)) {
            continue;
        }
        switch (op->type) {
        case DPIF_OP_FLOW_PUT:
            error = flow_put(sluice, &op->flow_put);
            if (error == EOPNOTSUPP) {
                give_actions_to_kernel(sluice, op->flow_put.actions, op->flow_put.actions_len);
            }
            break;
        case DPIF_OP_FLOW_DEL:
            error = flow_del(sluice, dpif, &op->flow_del);
            break;
        case DPIF_OP_FLOW_GET:
            error = flow_get(sluice, &op->flow_get);
            break;
        case DPIF_OP_EXECUTE:
            break;
        }
        if (error != EOPNOTSUPP) {
            op->error = error;
        } else if (sluice->is_looking) {
            note_change(sluice, op);
        }
    }
    put_orphans(sluice, dpif);
    ovs_mutex_unlock(&sluice->mutex);
}

static int
sluice_flow_flush(const struct dpif_offload *offload)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    struct sluice_flow *flow;
    struct ofpbuf message;

    ovs_mutex_lock(&sluice->mutex);
    hmap_clear(&sluice->matches);
    forget_flows(&sluice->flows);
    forget_flows(&sluice->moving);
    forget_flows(&sluice->returned);
    LIST_FOR_EACH_POP (flow, orphan_node, &sluice->orphans) {
        flow_free(flow);
    }
    forget_names(&sluice->doubles);
    forget_chains(sluice);
    sluice->is_flushed = true;
    /* A deletion without a name is one of all. */
    begin_message(&message, FAMILY_FLOW, OVS_FLOW_CMD_DEL);
    send_message(sluice, &message, true);
    ovs_mutex_unlock(&sluice->mutex);
    return 0;
}

static uint64_t
sluice_flow_count(const struct dpif_offload *offload)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    uint64_t count;

    ovs_mutex_lock(&sluice->mutex);
    count = hmap_count(&sluice->flows);
    ovs_mutex_unlock(&sluice->mutex);
    return count;
}

/* Dumps. */

struct sluice_dump {
    struct dpif_offload_flow_dump dump;
    struct hmap_position position; /* Protected by the mutex of the provider, as the next. */
    bool is_over;                  /* The position is that of the first flow again. */
};

struct sluice_dump_thread {
    struct dpif_offload_flow_dump_thread thread;
    struct ofpbuf data; /* What the flows of the last batch consist of. */
};

static struct dpif_offload_flow_dump *
sluice_flow_dump_create(const struct dpif_offload *offload, bool terse)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    struct sluice_dump *dump = xzalloc(sizeof *dump);

    dpif_offload_flow_dump_init(&dump->dump, offload, terse);
    /* A revalidator dumps twice a second, whether there are operations or not. Its dumps are terse, and those of a person are not. */
    ovs_mutex_lock(&sluice->mutex);
    hear(sluice);
    ovs_mutex_unlock(&sluice->mutex);
    if (terse) {
        move_flows(sluice);
        /* Those are shown in the datapath from now on. */
        ovs_mutex_lock(&sluice->mutex);
        forget_flows(&sluice->returned);
        ovs_mutex_unlock(&sluice->mutex);
    }
    return &dump->dump;
}

static int
sluice_flow_dump_destroy(struct dpif_offload_flow_dump *dump)
{
    free(CONTAINER_OF(dump, struct sluice_dump, dump));
    return 0;
}

static struct dpif_offload_flow_dump_thread *
sluice_flow_dump_thread_create(struct dpif_offload_flow_dump *dump)
{
    struct sluice_dump_thread *thread = xzalloc(sizeof *thread);

    dpif_offload_flow_dump_thread_init(&thread->thread, dump);
    ofpbuf_init(&thread->data, 4096);
    return &thread->thread;
}

static void
sluice_flow_dump_thread_destroy(struct dpif_offload_flow_dump_thread *thread_)
{
    struct sluice_dump_thread *thread = CONTAINER_OF(thread_, struct sluice_dump_thread, thread);

    ofpbuf_uninit(&thread->data);
    free(thread);
}

static int
sluice_flow_dump_next(struct dpif_offload_flow_dump_thread *thread_, struct dpif_flow *shown, int max_flows)
{
    struct sluice_dump_thread *thread = CONTAINER_OF(thread_, struct sluice_dump_thread, thread);
    struct sluice_dump *dump = CONTAINER_OF(thread_->dump, struct sluice_dump, dump);
    struct sluice_offload *sluice = sluice_cast(dump->dump.offload);
    const char *data;
    int count = 0;

    ofpbuf_clear(&thread->data);
    ovs_mutex_lock(&sluice->mutex);
    while (!dump->is_over && count < MIN(max_flows, DUMP_BATCH)) {
        struct hmap_node *node = hmap_at_position(&sluice->flows, &dump->position);
        struct sluice_flow *flow = CONTAINER_OF(node, struct sluice_flow, node);

        if (!node) {
            dump->is_over = true;
            break;
        }
        flow_show(sluice, flow, &shown[count++]);
        if (dump->dump.terse) {
            flow->shown_in = sluice->round;
        }
        ofpbuf_put(&thread->data, flow->key->data, flow->key->size);
        ofpbuf_put(&thread->data, flow->mask->data, flow->mask->size);
        ofpbuf_put(&thread->data, flow->actions->data, flow->actions->size);
    }
    ovs_mutex_unlock(&sluice->mutex);

    /* Now that the data stays where it is. */
    data = thread->data.data;
    for (int i = 0; i < count; i++) {
        shown[i].key = ALIGNED_CAST(const struct nlattr *, data);
        data += shown[i].key_len;
        shown[i].mask = ALIGNED_CAST(const struct nlattr *, data);
        data += shown[i].mask_len;
        shown[i].actions = ALIGNED_CAST(const struct nlattr *, data);
        data += shown[i].actions_len;
    }
    return count;
}

/* Meters. ovs-vswitchd asks the kernel's datapath first, and comes here only if that has not failed. */

static int
sluice_meter_set(const struct dpif_offload *offload, ofproto_meter_id id, struct ofputil_meter_config *config)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    const struct ofputil_meter_band *band = config->bands;
    struct sluice_meter *meter;

    /* The kernel's datapath takes no others: one band, which drops. */
    if (config->n_bands != 1 || band->type != OFPMBT13_DROP) {
        return EOPNOTSUPP;
    }
    ovs_mutex_lock(&sluice->mutex);
    meter = meter_find(sluice, id.uint32);
    if (!meter) {
        struct dpif_flow_stats counted;

        meter = xzalloc(sizeof *meter);
        meter->id = id.uint32;
        for (uint32_t i = 0; i < ARRAY_SIZE(meter->counts); i++) {
            meter->counts[i].over = meter_read(sluice, meter->id, i, 0, &counted);
        }
        hmap_insert(&sluice->meters, &meter->node, hash_int(meter->id, 0));
    }
    meter->is_kbps = (config->flags & OFPMF13_KBPS) != 0;
    meter->rate = band->rate;
    meter->burst = config->flags & OFPMF13_BURST ? band->burst_size : band->rate;
    send_meter(sluice, meter, OVS_METER_CMD_SET);
    ovs_mutex_unlock(&sluice->mutex);
    return 0;
}

/* Adds what agents have counted for a meter to what the kernel's datapath has. */
static int
meter_add_stats(const struct sluice_offload *sluice, struct sluice_meter *meter, struct ofputil_meter_stats *stats)
{
    const struct sluice_count *reached, *dropped;

    if (!meter) {
        return ENOENT;
    }
    if (stats) {
        meter_look(sluice, meter);
        reached = &meter->counts[0];
        dropped = &meter->counts[1];
        stats->packet_in_count += reached->before.n_packets + reached->now.n_packets;
        stats->byte_in_count += reached->before.n_bytes + reached->now.n_bytes;
        if (stats->n_bands && stats->bands) {
            stats->bands[0].packet_count += dropped->before.n_packets + dropped->now.n_packets;
            stats->bands[0].byte_count += dropped->before.n_bytes + dropped->now.n_bytes;
        }
    }
    return 0;
}

static int
sluice_meter_get(const struct dpif_offload *offload, ofproto_meter_id id, struct ofputil_meter_stats *stats)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    int error;

    ovs_mutex_lock(&sluice->mutex);
    error = meter_add_stats(sluice, meter_find(sluice, id.uint32), stats);
    ovs_mutex_unlock(&sluice->mutex);
    return error;
}

static int
sluice_meter_del(const struct dpif_offload *offload, ofproto_meter_id id, struct ofputil_meter_stats *stats)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    struct sluice_meter *meter;
    int error;

    ovs_mutex_lock(&sluice->mutex);
    meter = meter_find(sluice, id.uint32);
    error = meter_add_stats(sluice, meter, stats);
    if (meter) {
        send_meter(sluice, meter, OVS_METER_CMD_DEL);
        hmap_remove(&sluice->meters, &meter->node);
        free(meter);
    }
    ovs_mutex_unlock(&sluice->mutex);
    return error;
}

/* Ports. */

static bool
sluice_can_offload(struct dpif_offload *offload OVS_UNUSED, struct netdev *netdev)
{
    return !netdev_vport_is_vport_class(netdev->netdev_class) || !strcmp(netdev_get_dpif_type(netdev), TYPE);
}

static int
sluice_port_add(struct dpif_offload *offload, struct netdev *netdev, odp_port_t port_no)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    struct dpif_offload_port *port = xmalloc(sizeof *port);

    if (!dpif_offload_port_mgr_add(offload, port, netdev, port_no, false)) {
        free(port);
        return EEXIST;
    }
    dpif_offload_set_netdev_offload(netdev, offload);
    ovs_mutex_lock(&sluice->mutex);
    send_port(sluice, port, OVS_VPORT_CMD_NEW);
    /* Flows may have been refused for want of it; but what was changed while it is looked must not move. */
    if (sluice->is_looking) {
        sluice->has_port = true;
    } else {
        forget_refused(sluice);
    }
    sluice->must_look = sluice->is_greeted;
    ovs_mutex_unlock(&sluice->mutex);
    return 0;
}

static void
free_port(struct dpif_offload_port *port)
{
    netdev_close(port->netdev);
    free(port);
}

static int
sluice_port_del(struct dpif_offload *offload, odp_port_t port_no)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    struct dpif_offload_port *port = dpif_offload_port_mgr_remove(offload, port_no);

    if (port) {
        ovs_mutex_lock(&sluice->mutex);
        send_port(sluice, port, OVS_VPORT_CMD_DEL);
        ovs_mutex_unlock(&sluice->mutex);
        dpif_offload_set_netdev_offload(port->netdev, NULL);
        ovsrcu_postpone(free_port, port);
    }
    return 0;
}

static struct netdev *
sluice_get_netdev(const struct dpif_offload *offload, odp_port_t port_no)
{
    struct dpif_offload_port *port = dpif_offload_port_mgr_find_by_odp_port(offload, port_no);

    return port ? port->netdev : NULL;
}

/* The provider. */

static int
sluice_open(const struct dpif_offload_class *class, struct dpif *dpif, struct dpif_offload **offload)
{
    struct sluice_offload *sluice = xzalloc(sizeof *sluice);

    dpif_offload_init(&sluice->offload, class, dpif);
    sluice->features = dpif_get_features(dpif);
    sluice->datapath = xstrdup(dpif_base_name(dpif));
    atomic_init(&sluice->is_enabled, false);
    ovs_mutex_init(&sluice->mutex);
    sluice->run_dir = xstrdup("/run/sluice");
    sluice->socket = -1;
    hmap_init(&sluice->flows);
    hmap_init(&sluice->matches);
    hmap_init(&sluice->moving);
    ovs_list_init(&sluice->orphans);
    hmap_init(&sluice->returned);
    hmap_init(&sluice->refused);
    sluice->look_at = LLONG_MAX;
    hmap_init(&sluice->doubles);
    hmap_init(&sluice->chains);
    hmap_init(&sluice->meters);
    sluice->memory.socket = -1;
    *offload = &sluice->offload;
    return 0;
}

static void
sluice_close(struct dpif_offload *offload)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    struct dpif_offload_port *port;
    struct sluice_flow *flow;

    /* Before the ports are forgotten, of which the agent hears nothing then: if ovs-vswitchd ends, packets shall go on as they do. */
    if (sluice->socket >= 0) {
        close(sluice->socket);
        sluice->socket = -1;
        sluice->is_greeted = false;
    }
    DPIF_OFFLOAD_PORT_FOR_EACH (port, offload) {
        sluice_port_del(offload, port->port_no);
    }
    memory_forget(&sluice->memory);
    hmap_clear(&sluice->matches);
    forget_flows(&sluice->flows);
    forget_flows(&sluice->moving);
    forget_flows(&sluice->returned);
    LIST_FOR_EACH_POP (flow, orphan_node, &sluice->orphans) {
        flow_free(flow);
    }
    forget_names(&sluice->refused);
    forget_names(&sluice->doubles);
    forget_chains(sluice);
    forget_meters(sluice);
    hmap_destroy(&sluice->flows);
    hmap_destroy(&sluice->matches);
    hmap_destroy(&sluice->moving);
    hmap_destroy(&sluice->returned);
    hmap_destroy(&sluice->refused);
    hmap_destroy(&sluice->doubles);
    hmap_destroy(&sluice->chains);
    hmap_destroy(&sluice->meters);
    ovs_mutex_destroy(&sluice->mutex);
    free(sluice->run_dir);
    free(sluice->datapath);
    dpif_offload_destroy(offload);
    free(sluice);
}

static void
sluice_set_config(struct dpif_offload *offload, const struct smap *other_config)
{
    struct sluice_offload *sluice = sluice_cast(offload);
    const char *run_dir = smap_get_def(other_config, "sluice-run-dir", "/run/sluice");

    ovs_mutex_lock(&sluice->mutex);
    if (strcmp(run_dir, sluice->run_dir)) {
        disconnect(sluice, "sluice-run-dir is another one now");
        free(sluice->run_dir);
        sluice->run_dir = xstrdup(run_dir);
    }
    if (smap_get_bool(other_config, "hw-offload", false)) {
        atomic_store_relaxed(&sluice->is_enabled, true);
        connect_agent(sluice);
    }
    ovs_mutex_unlock(&sluice->mutex);
}

static void
sluice_get_debug(const struct dpif_offload *offload, struct ds *ds, struct json *json OVS_UNUSED)
{
    struct sluice_offload *sluice = sluice_cast(offload);

    if (ds) {
        ovs_mutex_lock(&sluice->mutex);
        ds_put_format(ds, "  - %s: %s, %"PRIuSIZE" flows and %"PRIuSIZE" that move, %"PRIuSIZE" refused, counters %s, "
                      "datapath looked through %llu times\n",
                      sluice->run_dir, sluice->socket >= 0 ? "connected" : "not connected", hmap_count(&sluice->flows),
                      hmap_count(&sluice->moving), count_refused(sluice), sluice->memory.words ? "shared" : "not there",
                      sluice->looks);
        ovs_mutex_unlock(&sluice->mutex);
    }
}

struct dpif_offload_class dpif_offload_sluice_class = {
    .type = "sluice",
    .impl_type = DPIF_OFFLOAD_IMPL_FLOWS_PROVIDER_ONLY,
    .supported_dpif_types = (const char *const[]) { TYPE, NULL },
    .open = sluice_open,
    .close = sluice_close,
    .set_config = sluice_set_config,
    .get_debug = sluice_get_debug,
    .can_offload = sluice_can_offload,
    .port_add = sluice_port_add,
    .port_del = sluice_port_del,
    .flow_flush = sluice_flow_flush,
    .flow_dump_create = sluice_flow_dump_create,
    .flow_dump_next = sluice_flow_dump_next,
    .flow_dump_destroy = sluice_flow_dump_destroy,
    .flow_dump_thread_create = sluice_flow_dump_thread_create,
    .flow_dump_thread_destroy = sluice_flow_dump_thread_destroy,
    .operate = sluice_operate,
    .flow_count = sluice_flow_count,
    .meter_set = sluice_meter_set,
    .meter_get = sluice_meter_get,
    .meter_del = sluice_meter_del,
    .get_netdev = sluice_get_netdev,
};
