"""Reads and writes messages with upb, the protobuf implementation of Python. Prints one line per input line, except S.

S hex                          a .proto file; the following lines use its message `M`
R hex paths                    prints the columns at these paths of a message
W hex hex path value paths     checks that setting the column in the first message gives the second
"""
import os, subprocess, sys, tempfile
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

WRAPPERS = {f"google.protobuf.{kind}Value" for kind in
            "Double Float Int64 UInt64 Int32 UInt32 Bool String Bytes".split()}


def schema(text):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/a.proto", "wb") as file:
            file.write(text)
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports",
                   f"--descriptor_set_out={folder}/out", "a.proto"]
        done = subprocess.run(command, capture_output=True, cwd=folder)
        if done.returncode:
            sys.exit(f"protoc refuses: {done.stderr.decode()}\n{text.decode()}")
        with open(f"{folder}/out", "rb") as file:
            raw = file.read()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.Add(file)
    return raw, message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))


def is_wrapper(field):
    return field.message_type is not None and field.message_type.full_name in WRAPPERS


def column(at, path):
    *parents, name = path.split(".")
    for parent in parents:
        at = getattr(at, parent)
    field = at.DESCRIPTOR.fields_by_name[name]
    if field.has_presence and not at.HasField(name):
        return "-"
    value = getattr(at, name)
    value = value.value if is_wrapper(field) else value
    if isinstance(value, str):
        return "x" + value.encode().hex()
    if isinstance(value, bytes):
        return "x" + value.hex()
    return repr(float(value)) if isinstance(value, float) else str(int(value))


def columns(made, paths):
    try:
        return " ".join(column(made, path) for path in paths.split(","))
    except UnicodeDecodeError:
        return "not UTF-8"


def put(at, path, value):
    *parents, name = path.split(".")
    for parent in parents:
        if value == "-" and not at.HasField(parent):
            return
        at = getattr(at, parent)
    field = at.DESCRIPTOR.fields_by_name[name]
    if value == "-":
        return at.ClearField(name)
    if is_wrapper(field):
        at, field = getattr(at, name), field.message_type.fields_by_name["value"]
        at.SetInParent()
    if value[0] == "x":
        raw = bytes.fromhex(value[1:])
        value = raw.decode() if field.type == field.TYPE_STRING else raw
    elif field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        value = float(value)
    else:
        value = bool(int(value)) if field.type == field.TYPE_BOOL else int(value)
    setattr(at, field.name, value)


def parsed(made, raw):
    try:
        return made.FromString(bytes.fromhex(raw))
    except message.DecodeError:
        return None


made = None
for line in sys.stdin:
    what, *rest = line.rstrip("\n").split(" ")
    if what == "S":
        raw, made = schema(bytes.fromhex(rest[0]))
        print(raw.hex())
    elif what == "R":
        found = parsed(made, rest[0])
        print("refused" if found is None else columns(found, rest[1]))
    elif what == "W":
        before, after, path, value, paths = rest
        before, after = parsed(made, before), parsed(made, after)
        if before is None:
            print("refused")
            continue
        put(before, path, value)
        wanted, found = columns(before, paths), "refused" if after is None else columns(after, paths)
        print("same" if wanted == found else f"wanted {wanted}, found {found}")
