-- Shows LWEP (docs/lwep.md) in Wireshark and tshark, in both layouts: `tshark -X lua_script:lwep.lua`, or a copy in the folder for
-- personal Lua plugins (Help, About, Folders).

local lwep = Proto("lwep", "LWEP")

local TYPES = {"OPEN", "ACCEPT", "DATA", "ACK", "PROBE", "END", "RESET", "UNKNOWN", "ACKS"}
local OPEN, ACCEPT, DATA, ACK, RESET, UNKNOWN, ACKS = 1, 2, 3, 4, 7, 8, 9
local REASONS = {
    "nobody listens", "no room", "ended by the program", "no answer for too long", "a message that is too long", "other version",
}
local PLAIN_BYTES = 34
-- Bytes of an entry of ACKS.
local ACKS_BYTES = 16
-- TCP port, and the identifier of the option's experiment; also the EtherType of the plain layout.
local PORT, EXPERIMENT = 34997, 0x88b5

local f = {
    version = ProtoField.uint8("lwep.version", "Version", base.DEC, nil, 0xf0),
    type = ProtoField.uint8("lwep.type", "Type", base.DEC, TYPES, 0x0f),
    flags = ProtoField.uint8("lwep.flags", "Flags", base.HEX),
    checksum_flag = ProtoField.bool("lwep.flags.checksum", "Checksum", 8, nil, 1),
    answer = ProtoField.bool("lwep.flags.answer", "Answer at once", 8, nil, 2),
    fragments = ProtoField.bool("lwep.flags.fragments", "Fragments of one message", 8, nil, 4),
    length = ProtoField.uint16("lwep.length", "Length"),
    connection = ProtoField.uint32("lwep.connection", "Connection", base.HEX),
    token = ProtoField.uint32("lwep.token", "Token", base.HEX),
    number = ProtoField.uint32("lwep.number", "Number"),
    acknowledgement = ProtoField.uint32("lwep.acknowledgement", "Acknowledgement"),
    window = ProtoField.uint16("lwep.window", "Window"),
    remaining = ProtoField.uint16("lwep.remaining", "Fragments that follow"),
    selective = ProtoField.bytes("lwep.selective", "Selective"),
    further = ProtoField.bytes("lwep.selective.further", "Selective, continued"),
    data = ProtoField.bytes("lwep.data", "Data"),
    checksum = ProtoField.uint32("lwep.checksum", "Checksum (CRC-32C)", base.HEX),
    layout = ProtoField.string("lwep.layout", "Layout"),
    reason = ProtoField.uint8("lwep.reason", "Reason", base.DEC, REASONS),
    other_version = ProtoField.uint8("lwep.reason.version", "Version of the sender"),
    own_connection = ProtoField.uint32("lwep.description.connection", "Sender's connection", base.HEX),
    own_token = ProtoField.uint32("lwep.description.token", "Sender's token", base.HEX),
    service = ProtoField.uint32("lwep.description.service", "Service", base.HEX),
    frame = ProtoField.uint16("lwep.description.frame", "Most bytes of data in a frame"),
    checksums = ProtoField.uint16("lwep.description.checksums", "Wants checksums"),
    long = ProtoField.uint32("lwep.description.long", "Most bytes of a long message"),
    address = ProtoField.ipv4("lwep.description.address", "IPv4 address"),
    holds = ProtoField.uint16("lwep.description.holds", "Frames that wait without loss"),
}
lwep.fields = f

local malformed = ProtoExpert.new("lwep.malformed", "Not a whole LWEP frame", expert.group.MALFORMED, expert.severity.ERROR)
local ends = ProtoExpert.new("lwep.ends", "The connection ends", expert.group.SEQUENCE, expert.severity.WARN)
lwep.experts = {malformed, ends}

local function flags(tree, byte)
    local node = tree:add(f.flags, byte)
    node:add(f.checksum_flag, byte)
    node:add(f.answer, byte)
    node:add(f.fragments, byte)
end

-- What OPEN and ACCEPT say of their sender.
local function description(tree, data)
    if data:len() < 24 then
        tree:add_proto_expert_info(malformed)
        return ""
    end
    local node = tree:add(lwep, data, "Description")
    node:add(f.own_connection, data(0, 4))
    node:add(f.own_token, data(4, 4))
    node:add(f.service, data(8, 4))
    node:add(f.frame, data(12, 2))
    node:add(f.checksums, data(14, 2))
    node:add(f.long, data(16, 4))
    node:add(f.address, data(20, 4))
    if data:len() >= 26 then node:add(f.holds, data(24, 2)) end
    return string.format(" service=0x%x", data(8, 4):uint())
end

-- What ACKS says of each connection.
local function acknowledgements(tree, data)
    local count = math.floor(data:len() / ACKS_BYTES)
    for index = 0, count - 1 do
        local entry = data(index * ACKS_BYTES, ACKS_BYTES)
        local node = tree:add(lwep, entry, "Connection")
        node:add(f.connection, entry(0, 4))
        node:add(f.token, entry(4, 4))
        node:add(f.acknowledgement, entry(8, 4))
        node:add(f.window, entry(12, 2))
        node:append_text(string.format(" 0x%x, acknowledgement=%d window=%d", entry(0, 4):uint(), entry(8, 4):uint(), entry(12, 2):uint()))
    end
    return string.format(" connections=%d", count)
end

local function plain(buffer, pinfo, root)
    pinfo.cols.protocol = "LWEP"
    local tree = root:add(lwep, buffer())
    if buffer:len() < PLAIN_BYTES then
        tree:add_proto_expert_info(malformed)
        return
    end
    local kind, length = buffer(0, 1):bitfield(4, 4), buffer(2, 2):uint()
    local is_summed = buffer(1, 1):bitfield(7, 1) == 1
    tree:add(f.layout, "plain"):set_generated()
    tree:add(f.version, buffer(0, 1))
    tree:add(f.type, buffer(0, 1))
    flags(tree, buffer(1, 1))
    tree:add(f.length, buffer(2, 2))
    tree:add(f.connection, buffer(4, 4))
    tree:add(f.token, buffer(8, 4))
    tree:add(f.number, buffer(12, 4))
    tree:add(f.acknowledgement, buffer(16, 4))
    tree:add(f.window, buffer(20, 2))
    tree:add(f.remaining, buffer(22, 2))
    tree:add(f.selective, buffer(24, 8))
    local name = TYPES[kind] or string.format("type %d", kind)
    local info = string.format("%s number=%d acknowledgement=%d window=%d length=%d", name, buffer(12, 4):uint(), buffer(16, 4):uint(),
        buffer(20, 2):uint(), length)
    -- A capture may have only the first bytes of a frame.
    local there = math.min(length, buffer:len() - PLAIN_BYTES)
    if length > buffer:reported_len() - PLAIN_BYTES then
        tree:add_proto_expert_info(malformed)
    end
    if there > 0 then
        local data = buffer(PLAIN_BYTES, there)
        if kind == OPEN or kind == ACCEPT then
            info = info .. description(tree, data)
        elseif kind == ACK then
            tree:add(f.further, data)
        elseif kind == ACKS then
            info = info .. acknowledgements(tree, data)
        elseif kind == RESET then
            tree:add(f.reason, data(0, 1))
            if there > 1 then
                tree:add(f.other_version, data(1, 1))
            end
            info = info .. " reason=" .. (REASONS[data(0, 1):uint()] or data(0, 1):uint())
        else
            tree:add(f.data, data)
        end
    end
    if is_summed and PLAIN_BYTES + length + 4 <= buffer:len() then
        tree:add(f.checksum, buffer(PLAIN_BYTES + length, 4))
    end
    if kind == RESET or kind == UNKNOWN then
        tree:add_proto_expert_info(ends)
    end
    pinfo.cols.info = info
    tree:append_text(", " .. name)
end

function lwep.dissector(buffer, pinfo, root)
    plain(buffer, pinfo, root)
    return buffer:len()
end

DissectorTable.get("ethertype"):add(EXPERIMENT, lwep)

-- The segmentation layout is TCP for all others: its fields are read where TCP's dissector has left them.
local ip_id, ip_len = Field.new("ip.id"), Field.new("ip.len")
local source, target = Field.new("tcp.srcport"), Field.new("tcp.dstport")
local acknowledgement, window = Field.new("tcp.ack_raw"), Field.new("tcp.window_size_value")
local options, segment = Field.new("tcp.options"), Field.new("tcp.segment_data")
local payload = Field.new("tcp.payload")

local segmented = Proto("lwep_segmented", "LWEP, segmentation layout")

local function first(field)
    return (field())
end

function segmented.dissector(buffer, pinfo, root)
    local from, to, option = first(source), first(target), first(options)
    if not (from and to and option and from.value == PORT and to.value == PORT and option.len >= 18) then
        return
    end
    local range = option.range
    if range(0, 1):uint() ~= 253 or range(2, 2):uint() ~= EXPERIMENT then
        return
    end
    local low, high = first(ip_id).value, range(12, 2):uint()
    local number, ack, win = high * 65536 + low, first(acknowledgement), first(window)
    local data = first(payload) or first(segment)
    local length = data and data.len or 0
    local tree = root:add(lwep, range)
    tree:add(f.layout, "segmentation"):set_generated()
    tree:add(f.version, range(14, 1))
    tree:add(f.type, range(14, 1))
    flags(tree, range(15, 1))
    tree:add(f.length, length):set_generated()
    tree:add(f.connection, range(4, 4))
    tree:add(f.token, range(8, 4))
    tree:add(f.number, number):set_generated()
    tree:add(f.acknowledgement, ack.range, ack.value)
    tree:add(f.window, win.range, win.value)
    if range(15, 1):bitfield(5, 1) == 1 then
        tree:add(f.remaining, range(16, 2), (range(16, 2):uint() - low) % 65536)
    end
    if data then
        tree:add(f.data, data.range)
    end
    tree:append_text(", DATA")
    pinfo.cols.protocol = "LWEP"
    pinfo.cols.info:clear_fence()
    pinfo.cols.info = string.format("DATA number=%d acknowledgement=%d window=%d length=%d, segmentation layout", number, ack.value,
        win.value, length)
end

register_postdissector(segmented)
