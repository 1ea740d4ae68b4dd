"""Protobuf and gRPC stubs, generated from the .proto files here by `make proto`. Only messages and fields that are used."""
