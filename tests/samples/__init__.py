"""Records of random schemas, from serializers we did not write."""
