"""What a running part of Tidemill tells over HTTP."""
