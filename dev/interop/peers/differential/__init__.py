"""The requests that go to two servers, compared answer by answer; differential_peer.py runs them.

`values` holds what requests draw from, `pair` the two clients, `content` the comparable parts of answers,
`scene` the files, `metadata` and `requests` the areas.
"""
